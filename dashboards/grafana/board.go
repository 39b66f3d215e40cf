package main

import (
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
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

// source is the Prometheus that the reader has chosen.
func source() common.DataSourceRef {
	return common.DataSourceRef{Type: new("prometheus"), Uid: new("${datasource}")}
}

// row begins a part of a dashboard: the panels that follow stand under its title.
func row(title string) *dashboard.RowBuilder { return dashboard.NewRowBuilder(title) }
