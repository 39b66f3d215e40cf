package main

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// column is a figure of a row in the table.
type column[R any] struct {
	title string
	show  func(R) string
}

// printRows prints rows as a JSON array or as a table.
func printRows[R any](b *bench, asJSON bool, columns []column[R], rows []R) error {
	if asJSON {
		encoder := json.NewEncoder(b.stdout)
		encoder.SetIndent("", "  ")
		return encoder.Encode(rows)
	}
	out := table.NewWriter()
	out.SetStyle(table.StyleLight)
	var header table.Row
	var configs []table.ColumnConfig
	for i, c := range columns {
		header = append(header, c.title)
		if i >= 2 { // the case and the system are words, all others numbers
			configs = append(configs, table.ColumnConfig{Number: i + 1, Align: text.AlignRight, AlignHeader: text.AlignRight})
		}
	}
	out.AppendHeader(header)
	out.SetColumnConfigs(configs)
	out.Style().Format.Header = text.FormatDefault
	for _, r := range rows {
		var cells table.Row
		for _, c := range columns {
			cells = append(cells, c.show(r))
		}
		out.AppendRow(cells)
	}
	_, err := fmt.Fprintln(b.stdout, out.Render())
	return err
}

// number formats a figure, or a dash if there is none.
func number[N int | int64 | float64](n *N, decimals int) string {
	if n == nil {
		return "–"
	}
	return fmt.Sprintf("%.*f", decimals, float64(*n))
}

func percent(share *float64) string {
	if share == nil {
		return "–"
	}
	return fmt.Sprintf("%.1f %%", *share*100)
}

// median returns the middle figure, or the mean of the middle two.
func median(figures []float64) float64 {
	sorted := slices.Sorted(slices.Values(figures))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
