// Package dashboards_test holds the dashboards of Grafana and the rules of Prometheus against the metrics.
package dashboards_test

import (
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// boards are the dashboards of Grafana.
var boards = []string{"grafana/headgate.json", "grafana/jobs.json"}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestPanelsSayWhatTheyShow: each has a title of its own, a description, a unit, a
// query, and the reader's Prometheus; and lies beside the others, not upon them.
func TestPanelsSayWhatTheyShow(t *testing.T) {
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
		if err := json.Unmarshal([]byte(read(t, name)), &board); err != nil {
			t.Fatal(err)
		}
		seen, cells := map[string]bool{}, map[[2]int]string{}
		for _, p := range board.Panels {
			for i := range p.GridPos.W * p.GridPos.H {
				cell := [2]int{p.GridPos.X + i%p.GridPos.W, p.GridPos.Y + i/p.GridPos.W}
				if cells[cell] != "" || cell[0] >= 24 {
					t.Fatalf("%s: %q lies upon %q or beyond the edge at %v", name, p.Title, cells[cell], cell)
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
			if p.FieldConfig.Defaults.Unit == "" && p.Type != "table" { // whose columns have theirs
				t.Errorf("%s: %q has no unit", name, p.Title)
			}
			for i, target := range p.Targets {
				if target.Datasource.UID != "${datasource}" || target.RefID != string(rune('A'+i)) {
					t.Errorf("%s: %q asks %+v; want query %s, of the Prometheus that the reader chose", name, p.Title, target, string(rune('A'+i)))
				}
			}
		}
	}
}

var word = regexp.MustCompile(`[a-zA-Z_:][a-zA-Z0-9_:]*`)

// metricsIn lists the metrics that a text names.
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

// TestMetricsExist: what dashboards and rules name is what there is, no less and no
// more.
func TestMetricsExist(t *testing.T) {
	want := []string{ // the worker's own
		"headgate_config_last_reload_success_timestamp_seconds", "headgate_config_reloads_total", "headgate_config_taken",
	}
	for line := range strings.Lines(read(t, "metrics/testdata/metrics.txt")) {
		want = append(want, strings.Fields(line)[0])
	}
	slices.Sort(want)
	got := metricsIn(read(t, boards[0]) + read(t, boards[1]))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("metrics on the dashboards (-want +got):\n%s", diff)
	}
	for _, name := range metricsIn(read(t, "rules/headgate.yaml")) {
		if !slices.Contains(want, name) {
			t.Errorf("the rules name %s, which does not exist", name)
		}
	}
}
