package main

import (
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

// Units, as Grafana calls them.
const (
	count     = "short"
	seconds   = "s"
	perSecond = "cps"
	ratio     = "percentunit"
)

// letter is what Grafana calls the i-th query of a panel.
func letter(i int) string { return string(rune('A' + i)) }

// answer is one fact of this moment. It is green, and from the bounds on yellow and
// red. Bounds that no value reaches leave it green: not all that is much is bad.
func answer(title, description, unit string, query *prometheus.DataqueryBuilder, width uint32, yellow, red float64) *stat.PanelBuilder {
	return stat.NewPanelBuilder().
		Title(title).Description(description).Unit(unit).Datasource(source()).
		WithTarget(query.RefId(letter(0))).Height(4).Span(width).
		TextMode(common.BigValueTextModeAuto).ColorMode(common.BigValueColorModeBackground).GraphMode(common.BigValueGraphModeNone).
		ReduceOptions(common.NewReduceDataOptionsBuilder().Calcs([]string{"lastNotNull"})).
		Thresholds(bounds(yellow, red))
}

// named has a fact say which limit or process it is about, too.
func named(p *stat.PanelBuilder) *stat.PanelBuilder {
	return p.TextMode(common.BigValueTextModeValueAndName)
}

// bounds are the colours of an answer: green up to yellow, yellow up to red.
func bounds(yellow, red float64) *dashboard.ThresholdsConfigBuilder {
	return dashboard.NewThresholdsConfigBuilder().Mode(dashboard.ThresholdsModeAbsolute).Steps([]dashboard.Threshold{
		{Color: "green"}, {Color: "yellow", Value: &yellow}, {Color: "red", Value: &red},
	})
}

// words replaces numbers by words, with their colours.
func words(of map[string][2]string) []dashboard.ValueMapping {
	options := map[string]dashboard.ValueMappingResult{}
	for number, word := range of {
		options[number] = dashboard.ValueMappingResult{Text: new(word[0]), Color: new(word[1])}
	}
	return []dashboard.ValueMapping{{ValueMap: &dashboard.ValueMap{Type: dashboard.MappingTypeValueToText, Options: options}}}
}

// graph is queries over time, a third of the width.
func graph(title, description, unit string, queries ...*prometheus.DataqueryBuilder) *timeseries.PanelBuilder {
	p := timeseries.NewPanelBuilder().
		Title(title).Description(description).Unit(unit).Datasource(source()).
		Height(8).Span(8).Min(0).LineWidth(1).FillOpacity(10).ShowPoints(common.VisibilityModeNever).
		Legend(common.NewVizLegendOptionsBuilder().ShowLegend(true).DisplayMode(common.LegendDisplayModeList).Placement(common.LegendPlacementBottom)).
		Tooltip(common.NewVizTooltipOptionsBuilder().Mode(common.TooltipDisplayModeMulti).Sort(common.SortOrderDescending))
	for i, q := range queries {
		p.WithTarget(q.RefId(letter(i)))
	}
	return p
}

// stacked puts a graph's lines on top of each other.
func stacked(p *timeseries.PanelBuilder) *timeseries.PanelBuilder {
	return p.FillOpacity(40).Stacking(common.NewStackingConfigBuilder().Mode(common.StackingModeNormal).Group("A"))
}
