package main

import (
	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/table"
)

// column is one query of a table, whose rows are the values of a label.
type column struct{ title, unit, query string }

// rows is a table with one row for each value of the labels, sorted by its first
// column of numbers.
func rows(title, description string, labels map[string]string, columns ...column) *table.PanelBuilder {
	names, order, hidden := map[string]any{}, map[string]any{}, map[string]any{"Time": true}
	for label, name := range labels {
		names[label], order[label] = name, 0
	}
	p := table.NewPanelBuilder().
		Title(title).Description(description).Datasource(source()).Height(8).Span(24).
		SortBy([]cog.Builder[common.TableSortByFieldState]{
			common.NewTableSortByFieldStateBuilder().DisplayName(columns[0].title).Desc(true),
		})
	for i, c := range columns {
		p.WithTarget(now(c.query, "").Format(prometheus.PromQueryFormatTable).RefId(letter(i)))
		field := "Value #" + letter(i)
		names[field], order[field] = c.title, i+1
		p.OverrideByName(c.title, c.look())
	}
	return p.
		WithTransformation(dashboard.DataTransformerConfig{Id: "merge", Options: map[string]any{}}).
		WithTransformation(dashboard.DataTransformerConfig{Id: "organize", Options: map[string]any{
			"renameByName": names, "indexByName": order, "excludeByName": hidden,
		}})
}

// look is how a column is drawn: a ratio as a bar.
func (c column) look() []dashboard.DynamicConfigValue {
	look := []dashboard.DynamicConfigValue{{Id: "unit", Value: c.unit}}
	if c.unit == ratio {
		look = append(look,
			dashboard.DynamicConfigValue{Id: "custom.cellOptions", Value: map[string]any{"type": "gauge", "mode": "basic"}},
			dashboard.DynamicConfigValue{Id: "min", Value: 0}, dashboard.DynamicConfigValue{Id: "max", Value: 1})
	}
	return look
}
