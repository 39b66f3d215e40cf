package dashboards_test

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// promtool runs Prometheus's tool, which make test installs.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "promtool", args...).CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func TestRules(t *testing.T) {
	promtool(t, "check", "rules", "rules/headgate.yaml")
	promtool(t, "test", "rules", "rules/testdata/headgate.yaml")
}

func unmarshal(t *testing.T, path string, into any) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err == nil {
		err = yaml.Unmarshal(text, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

type alert struct {
	Alert               string
	Labels, Annotations map[string]string
}

// TestAlerts: each alert has its texts, and a test where it fires and one where it does not.
func TestAlerts(t *testing.T) {
	var rules struct{ Groups []struct{ Rules []alert } }
	unmarshal(t, "rules/headgate.yaml", &rules)
	fires, silent := tested(t)
	found := 0
	for _, g := range rules.Groups {
		for _, a := range g.Rules {
			if a.Alert == "" {
				continue
			}
			found++
			for _, name := range []string{"summary", "description", "runbook"} {
				if !strings.HasSuffix(a.Annotations[name], ".") {
					t.Errorf("%s: the %s is %q, want a sentence", a.Alert, name, a.Annotations[name])
				}
			}
			if s := a.Labels["severity"]; s != "critical" && s != "warning" && s != "info" {
				t.Errorf("%s: severity %q, want critical, warning or info", a.Alert, s)
			}
			if !fires[a.Alert] || !silent[a.Alert] {
				t.Errorf("%s: test where it fires: %v, where it does not: %v", a.Alert, fires[a.Alert], silent[a.Alert])
			}
		}
	}
	if found < 7 {
		t.Errorf("%d alerts", found)
	}
}

var alertName = regexp.MustCompile(`alertname="(\w+)"`)

// tested returns which alerts the tests of the rules expect to fire, and which not to.
func tested(t *testing.T) (fires, silent map[string]bool) {
	t.Helper()
	var tests struct {
		Tests []struct {
			Alerts []struct {
				Name     string `yaml:"alertname"`
				Expected []any  `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
			Exprs []struct {
				Expr     string
				Expected []any `yaml:"exp_samples"`
			} `yaml:"promql_expr_test"`
		}
	}
	unmarshal(t, "rules/testdata/headgate.yaml", &tests)
	fires, silent = map[string]bool{}, map[string]bool{}
	note := func(name string, expected []any) {
		fires[name] = fires[name] || len(expected) > 0
		silent[name] = silent[name] || len(expected) == 0
	}
	for _, test := range tests.Tests {
		for _, a := range test.Alerts {
			note(a.Name, a.Expected)
		}
		for _, e := range test.Exprs {
			note(alertName.FindStringSubmatch(e.Expr)[1], e.Expected)
		}
	}
	return fires, silent
}
