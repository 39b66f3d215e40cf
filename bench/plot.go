package main
type plot struct{}
func writePlot(string, plot) error { return nil }
func backlogPlot(spec, []backlogRow) plot { return plot{} }
func growthPlot([]backlogRow) plot { return plot{} }
