package headgate_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/headgate/headgate/internal/testutil/proctest"
)

const operatingPage = "docs/operating.md"

func TestOperating_Alerts(t *testing.T) {
	var rules struct {
		Groups []struct {
			Rules []struct{ Alert string }
		}
	}
	if err := yaml.Unmarshal([]byte(proctest.ReadFile(t, "dashboards/rules/headgate.yaml")), &rules); err != nil {
		t.Fatal(err)
	}
	var alerts []string
	for _, group := range rules.Groups {
		for _, rule := range group.Rules {
			if rule.Alert != "" {
				alerts = append(alerts, rule.Alert)
			}
		}
	}
	slices.Sort(alerts)
	var explained []string
	for line := range strings.Lines(proctest.ReadFile(t, operatingPage)) {
		if name, _, _ := strings.Cut(strings.TrimPrefix(line, "| "), " "); strings.HasPrefix(name, "Headgate") {
			explained = append(explained, name)
		}
	}
	slices.Sort(explained)
	if len(alerts) == 0 || !slices.Equal(alerts, explained) {
		t.Errorf("%s explains the alerts %q, want %q", operatingPage, explained, alerts)
	}
}

// TestOperating_Unit: systemd restarts a worker however often it failed, unless its config is wrong.
func TestOperating_Unit(t *testing.T) {
	section, settings := "", map[string]string{}
	for line := range strings.Lines(proctest.ReadFile(t, "deploy/headgate.service")) {
		line = strings.TrimSpace(line)
		if name, value, ok := strings.Cut(line, "="); ok {
			settings[section+name] = value
		} else if line != "" {
			section = line
		}
	}
	for name, want := range map[string]string{
		"[Unit]StartLimitIntervalSec": "0", "[Service]RestartSec": "5", "[Service]Restart": "on-failure", "[Service]RestartPreventExitStatus": "2",
	} {
		if settings[name] != want {
			t.Errorf("%s is %q, want %q", name, settings[name], want)
		}
	}
}

// TestOperating_LogLines: the page explains each warning and error in the log, and no other.
func TestOperating_LogLines(t *testing.T) {
	page := proctest.ReadFile(t, operatingPage)
	var logged []string
	sources := ""
	for _, path := range files(t, isSource) {
		sources += proctest.ReadFile(t, path)
		for _, text := range warnings(t, path) {
			logged = append(logged, text)
			if !strings.Contains(page, text) {
				t.Errorf("%s logs %q, which %s does not explain", path, text, operatingPage)
			}
		}
	}
	_, tables, _ := strings.Cut(page, "\n## The log\n")
	for line := range strings.Lines(tables) {
		cells := strings.Split(line, " | ")
		text := strings.TrimPrefix(cells[0], "| ")
		if len(cells) < 2 || text == "error" || text == "warning" {
			continue
		}
		if !slices.ContainsFunc(logged, func(l string) bool { return strings.HasSuffix(text, l) }) && !strings.Contains(sources, text) {
			t.Errorf("%s explains %q, which no code logs", operatingPage, text)
		}
	}
}

// isSource reports whether a file belongs to the commands or the library.
func isSource(path string) bool {
	first, _, _ := strings.Cut(filepath.ToSlash(path), "/")
	return strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") && filepath.Base(filepath.Dir(path)) != "redistest" &&
		slices.Contains([]string{"cmd", "dashboards", "internal", "lua", "scheduler", "tasks", "throttle"}, first)
}

// warnings returns the texts that a file logs by Warn or Error, in the call or in variables and
// constants that the call names.
func warnings(t *testing.T, path string) (texts []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	collect := func(of ast.Node) {
		ast.Inspect(of, func(node ast.Node) bool {
			switch n := node.(type) {
			case *ast.BasicLit:
				texts = append(texts, literal(n)...)
			case *ast.Ident:
				names = append(names, n.Name)
			}
			return true
		})
	}
	ast.Inspect(file, func(node ast.Node) bool {
		if call, ok := node.(*ast.CallExpr); ok {
			if message := logCall(call); message != nil {
				collect(message)
			}
		}
		return true
	})
	ast.Inspect(file, func(node ast.Node) bool {
		switch n := node.(type) {
		case *ast.AssignStmt:
			if name, ok := n.Lhs[0].(*ast.Ident); ok && slices.Contains(names, name.Name) {
				collect(n.Rhs[0])
			}
		case *ast.ValueSpec:
			if slices.Contains(names, n.Names[0].Name) && len(n.Values) == 1 {
				collect(n.Values[0])
			}
		}
		return true
	})
	return texts
}

// logCall returns the message of a call of Warn or Error, or nil.
func logCall(call *ast.CallExpr) ast.Expr {
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || len(call.Args) == 0 || call.Ellipsis.IsValid() {
		return nil
	}
	if of, ok := method.X.(*ast.Ident); ok && (of.Name == "http" || of.Name == "t") {
		return nil
	}
	switch method.Sel.Name {
	case "Warn", "Error":
		return call.Args[0]
	case "WarnContext", "ErrorContext":
		return call.Args[1]
	}
	return nil
}

func literal(lit *ast.BasicLit) []string {
	text, err := strconv.Unquote(lit.Value)
	if lit.Kind != token.STRING || err != nil || text == "" {
		return nil
	}
	return []string{text}
}

// commandBlocks are the code blocks of the page that operators copy, by their first line, with the
// test that runs them, or with the reason why no test can.
var commandBlocks = map[string]string{
	"mv .headgate/append* /var/lib/redis/": "TestOperating_Move",
	"redis-cli --rdb /backup/dump.rdb":     "TestOperating_Backup",
	"rm -rf /var/lib/redis/appendonlydir":  "TestOperating_Backup",
	"redis-cli --cluster create 10.0.0.1:6379 10.0.0.2:6379 10.0.0.3:6379 10.0.1.1:6379 10.0.1.2:6379 10.0.1.3:6379 --cluster-replicas 1": "needs six machines; redistest.RunCluster makes a cluster of processes with the same command",
	"redis: redis-cluster://10.0.0.1:6379,10.0.0.2:6379,10.0.0.3:6379":                                                                    "a config, which the tests of package config parse",
	"user worker on >WORKER-PASSWORD": "redistest.RunWithUsers runs a Redis with these users",
}

// TestOperating_CommandBlocks: each code block is run by a test, or is a named exception. The
// tests exist, and read the commands from the page.
func TestOperating_CommandBlocks(t *testing.T) {
	tests := proctest.ReadFile(t, "cmd/internal/config/left_behind_test.go")
	found := map[string]bool{}
	lines := strings.Split(proctest.ReadFile(t, operatingPage), "\n")
	for i, inBlock := 0, false; i < len(lines); i++ {
		first := ""
		switch fence := strings.HasPrefix(lines[i], "```"); {
		case fence:
			if inBlock = !inBlock; inBlock {
				first = lines[i+1]
			}
		case !inBlock && strings.HasPrefix(lines[i], "    "):
			first = strings.TrimSpace(lines[i])
		}
		if first == "" {
			continue
		}
		known := ""
		for begin := range commandBlocks {
			if strings.HasPrefix(first, begin) {
				known = begin
			}
		}
		if found[known] = true; known == "" {
			t.Errorf("%s:%d: no test runs the block %q: want it in commandBlocks", operatingPage, i+1, first)
		}
	}
	for begin, by := range commandBlocks {
		if !found[begin] {
			t.Errorf("%s has no block %q", operatingPage, begin)
		}
		if strings.HasPrefix(by, "Test") && !strings.Contains(tests, "func "+by+"(") {
			t.Errorf("there is no %s for %q", by, begin)
		}
	}
}
