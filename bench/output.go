package main

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// printRows prints rows as a JSON array or as a table. Fields with a tag such as `table:"over,0"` are
// the table's columns: the title, and the decimals of a number, or % for a share. A nil figure does
// not apply, and is a dash.
func printRows[R any](b *bench, asJSON bool, rows []R) error {
	if asJSON {
		encoder := json.NewEncoder(b.stdout)
		encoder.SetIndent("", "  ")
		return encoder.Encode(rows)
	}
	out := table.NewWriter()
	out.SetStyle(table.StyleLight)
	out.Style().Format.Header = text.FormatDefault
	var header table.Row
	var configs []table.ColumnConfig
	cells := make([]table.Row, len(rows))
	for _, field := range reflect.VisibleFields(reflect.TypeFor[R]()) {
		title, format, figure := strings.Cut(field.Tag.Get("table"), ",")
		if title == "" {
			continue
		}
		header = append(header, title)
		if figure {
			configs = append(configs, table.ColumnConfig{Number: len(header), Align: text.AlignRight, AlignHeader: text.AlignRight})
		}
		for i, r := range rows {
			cells[i] = append(cells[i], cell(reflect.ValueOf(r).FieldByIndex(field.Index), format))
		}
	}
	out.AppendHeader(header)
	out.SetColumnConfigs(configs)
	out.AppendRows(cells)
	_, err := fmt.Fprintln(b.stdout, out.Render())
	return err
}

func cell(v reflect.Value, format string) string {
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return "–"
		}
		v = v.Elem()
	}
	if format == "" {
		return v.String()
	}
	figure := v.Convert(reflect.TypeFor[float64]()).Float()
	if format == "%" {
		return percent(figure)
	}
	decimals, _ := strconv.Atoi(format)
	return strconv.FormatFloat(figure, 'f', decimals, 64)
}

func percent(share float64) string { return fmt.Sprintf("%.2f %%", share*100) }

// median returns the middle figure, or the mean of the middle two.
func median(figures []float64) float64 {
	sorted := slices.Sorted(slices.Values(figures))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
