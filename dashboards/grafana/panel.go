package main

import (
	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/table"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

// board begins a dashboard. Its two variables say which Prometheus to ask, and of
// which scope. The uid is what links go by, from other boards and from bookmarks: it
// stays when the title changes. Each of the two boards links to the other.
func board(uid, title, description string) *dashboard.DashboardBuilder {
	other := map[string]string{"headgate": "headgate-jobs", "headgate-jobs": "headgate"}[uid]
	return dashboard.NewDashboardBuilder(title).
		Uid(uid).Description(description).Tags([]string{"headgate"}).
		Editable().Refresh("10s").Time("now-30m", "now").Timezone("browser").
		Tooltip(dashboard.DashboardCursorSyncCrosshair).
		WithVariable(dashboard.NewDatasourceVariableBuilder("datasource").Label("Prometheus").Type("prometheus")).
		WithVariable(dashboard.NewQueryVariableBuilder("scope").Label("Scope").
			Description("The set of limits: what worker run --scope says.").
			Datasource(source()).
			Query(dashboard.StringOrMap{String: new("label_values(headgate_scope_up, scope)")}).
			Refresh(dashboard.VariableRefreshOnTimeRangeChanged).
			Sort(dashboard.VariableSortAlphabeticalAsc)).
		Link(dashboard.NewDashboardLinkBuilder(map[string]string{"headgate": "Limits", "headgate-jobs": "Jobs, queues, schedules, processes"}[other]).
			Type(dashboard.DashboardLinkTypeLink).Url("/d/" + other).IncludeVars(true).KeepTime(true))
}

// row begins a part of a dashboard: the panels that follow stand under its title.
func row(title string) *dashboard.RowBuilder { return dashboard.NewRowBuilder(title) }

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
