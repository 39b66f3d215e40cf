// Package dashboards_test checks the Grafana dashboards and the Prometheus rules against the metrics.
package dashboards_test

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/internal/testutil/proctest"
)

var boards = []string{"grafana/headgate.json", "grafana/jobs.json"}

// TestPanels: each panel has a title of its own, a description, a unit, a query of the data source
// variable, and overlaps with no other panel.
func TestPanels(t *testing.T) {
	for _, name := range boards {
		var board struct {
			UID    string
			Panels []struct {
				ID                       int
				Type, Title, Description string
				GridPos                  struct{ X, Y, W, H int }
				FieldConfig              struct{ Defaults struct{ Unit string } }
				Targets                  []struct {
					RefID      string
					Datasource struct{ UID string }
				}
			}
		}
		if err := json.Unmarshal([]byte(proctest.ReadFile(t, name)), &board); err != nil {
			t.Fatal(err)
		}
		seen, cells := map[string]bool{}, map[[2]int]string{}
		for _, p := range board.Panels {
			for i := range p.GridPos.W * p.GridPos.H {
				cell := [2]int{p.GridPos.X + i%p.GridPos.W, p.GridPos.Y + i/p.GridPos.W}
				if cells[cell] != "" || cell[0] >= 24 {
					t.Fatalf("%s: %q overlaps with %q, or leaves the grid, at %v", name, p.Title, cells[cell], cell)
				}
				cells[cell] = p.Title
			}
			if p.Type == "row" {
				continue
			}
			if p.Title == "" || seen[p.Title] || p.Description == "" || len(p.Targets) == 0 {
				t.Errorf("%s: panel %d %q: want a title of its own, a description and a query", name, p.ID, p.Title)
			}
			seen[p.Title] = true
			if p.FieldConfig.Defaults.Unit == "" && p.Type != "table" { // its columns have units
				t.Errorf("%s: %q has no unit", name, p.Title)
			}
			for i, target := range p.Targets {
				if target.Datasource.UID != "${datasource}" || target.RefID != string(rune('A'+i)) {
					t.Errorf("%s: %q queries %+v; want query %s of ${datasource}", name, p.Title, target, string(rune('A'+i)))
				}
			}
		}
	}
}

var word = regexp.MustCompile(`[a-zA-Z_:][a-zA-Z0-9_:]*`)

// metricsIn returns the names of metrics in a text.
func metricsIn(text string) []string {
	names := map[string]bool{}
	for _, name := range word.FindAllString(text, -1) {
		if !strings.HasPrefix(name, "headgate_") {
			continue
		}
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			name = strings.TrimSuffix(name, suffix)
		}
		names[name] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// TestMetricsExist: the dashboards show every metric, and they and the rules name no other.
func TestMetricsExist(t *testing.T) {
	want := []string{"headgate_config_applied"} // from cmd/internal/worker
	for line := range strings.Lines(proctest.ReadFile(t, "metrics/testdata/metrics.txt")) {
		want = append(want, strings.Fields(line)[0])
	}
	slices.Sort(want)
	got := metricsIn(proctest.ReadFile(t, boards[0]) + proctest.ReadFile(t, boards[1]))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("metrics on the dashboards (-want +got):\n%s", diff)
	}
	for _, name := range metricsIn(proctest.ReadFile(t, "rules/headgate.yaml")) {
		if !slices.Contains(want, name) {
			t.Errorf("the rules name %s, which does not exist", name)
		}
	}
}
