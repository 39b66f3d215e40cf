package main

import (
	"fmt"
	"strings"

	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
)

// series is a metric in the scope that the reader has chosen; more labels are as
// PromQL has them.
func series(metric string, labels ...string) string {
	return "headgate_" + metric + "{" + strings.Join(append([]string{`scope="$scope"`}, labels...), ",") + "}"
}

// told is a metric of the scope, which every process tells alike.
func told(metric string, by string, labels ...string) string {
	return "max by (" + by + ") (" + series("scope_"+metric, labels...) + ")"
}

// speed is how fast counters of all processes grow, a second.
func speed(metric, by string, labels ...string) string {
	return fmt.Sprintf("sum by (%s) (rate(%s[$__rate_interval]))", by, series(metric, labels...))
}

// grown is by how much counters of all processes have grown in a while.
func grown(metric, by, while string, labels ...string) string {
	return fmt.Sprintf("sum by (%s) (increase(%s[%s]))", by, series(metric, labels...), while)
}

// quantile is of a histogram, over all processes.
func quantile(q float64, metric, by string) string {
	groups := strings.TrimPrefix(by+", le", ", ")
	return fmt.Sprintf("histogram_quantile(%g, %s)", q, speed(metric+"_bucket", groups))
}

// filled is how much of a limit is taken, of the fullest of its keys that were
// looked at: 1 is all.
func filled() string {
	return told("permits_used", "limit") + " / " + told("permits_capacity", "limit")
}

// waits restricts a query by limit to limits that jobs wait for.
func waits(query string) string {
	return "(" + query + ") and on (limit) (" + told("waiting_jobs", "limit") + " > 0)"
}

// source is the Prometheus that the reader has chosen.
func source() common.DataSourceRef {
	return common.DataSourceRef{Type: new("prometheus"), Uid: new("${datasource}")}
}

// over is a query over time. The legend says what a line is, in Grafana's form:
// {{label}}.
func over(query, legend string) *prometheus.DataqueryBuilder {
	return prometheus.NewDataqueryBuilder().Datasource(source()).Expr(query).LegendFormat(legend).Range()
}

// now is a query of this moment.
func now(query, legend string) *prometheus.DataqueryBuilder {
	return prometheus.NewDataqueryBuilder().Datasource(source()).Expr(query).LegendFormat(legend).Instant()
}
