package headgate_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/testutil/proctest"
)

// public returns the folders of the packages that programs can import, except lua.
func public(t *testing.T) (dirs []string) {
	t.Helper()
	for _, path := range files(t, func(path string) bool { return strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") }) {
		dir := filepath.Dir(path)
		root, _, _ := strings.Cut(dir, "/")
		if !slices.Contains([]string{"throttle", "scheduler", "tasks", "dashboards"}, root) || slices.Contains(dirs, dir) {
			continue
		}
		if !strings.Contains("\n"+proctest.ReadFile(t, path), "\npackage main\n") {
			dirs = append(dirs, dir)
		}
	}
	if len(dirs) < 9 {
		t.Fatalf("%d public packages: %v", len(dirs), dirs)
	}
	return dirs
}

// TestPackages_DocFitsAScreen: go doc of a package fits on a screen.
func TestPackages_DocFitsAScreen(t *testing.T) {
	const screen = 50
	for _, dir := range public(t) {
		out, err := exec.Command("go", "doc", "-short", "./"+dir).CombinedOutput()
		if lines := strings.Count(string(out), "\n"); err != nil || lines == 0 || lines > screen {
			t.Errorf("go doc -short ./%s has %d lines, %v; want at most %d", dir, lines, err, screen)
		}
	}
}

// TestPackages_SchedulerAndCron: neither imports the other.
func TestPackages_SchedulerAndCron(t *testing.T) {
	for of, without := range map[string]string{"scheduler": "scheduler/cron", "scheduler/cron": "scheduler"} {
		if deps := dependencies(t, of); slices.Contains(deps, module+without) {
			t.Errorf("%s: want it without %s, it has %v", of, without, deps)
		}
	}
}

// TestPackages_Zones: the commands bring the time zones along. A library leaves that to the program.
func TestPackages_Zones(t *testing.T) {
	for of, want := range map[string]bool{"cmd/worker": true, "cmd/enqueue": true, "scheduler": false, "scheduler/cron": false, "throttle": false} {
		if got := slices.Contains(dependencies(t, of), "time/tzdata"); got != want {
			t.Errorf("%s with time/tzdata: %v, want %v", of, got, want)
		}
	}
}

// TestPackages_ZonesInOnePlace: one function loads time zones, so its errors say what is missing.
func TestPackages_ZonesInOnePlace(t *testing.T) {
	for _, path := range files(t, func(path string) bool { return strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") }) {
		if filepath.Dir(path) != "internal/zone" && strings.Contains(proctest.ReadFile(t, path), "time.LoadLocation") {
			t.Errorf("%s: want zone.Load instead of time.LoadLocation", path)
		}
	}
}

const module = "github.com/headgate/headgate/"

// dependencies returns the transitive imports of a package.
func dependencies(t *testing.T, of string) []string {
	t.Helper()
	out, err := exec.Command("go", "list", "-deps", "./"+of).Output()
	deps := strings.Fields(string(out))
	if err != nil || !slices.Contains(deps, module+of) {
		t.Fatalf("%s: %v", of, err)
	}
	return deps
}

// TestPackages_NoInternalTypes: public packages export no types of internal ones, which programs could
// not name.
func TestPackages_NoInternalTypes(t *testing.T) {
	for _, dir := range public(t) {
		paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			fset := token.NewFileSet()
			file, err := parser.ParseFile(fset, path, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			internal := map[string]bool{}
			for _, spec := range file.Imports {
				imported, _ := strconv.Unquote(spec.Path.Value)
				if strings.Contains(imported, "/internal/") {
					internal[filepath.Base(imported)] = true
				}
			}
			ast.FileExports(file)
			ast.Inspect(file, func(n ast.Node) bool {
				if _, ok := n.(*ast.BlockStmt); ok {
					return false
				}
				if sel, ok := n.(*ast.SelectorExpr); ok {
					if of, ok := sel.X.(*ast.Ident); ok && internal[of.Name] {
						t.Errorf("%s: what is exported names %s.%s, which is internal", fset.Position(n.Pos()), of.Name, sel.Sel)
					}
				}
				return true
			})
		}
	}
}

// TestPackages_Throttle: the limiter does not import the packages about waiting jobs.
func TestPackages_Throttle(t *testing.T) {
	deps := dependencies(t, "throttle")
	for _, without := range []string{"scheduler", "scheduler/cron", "internal/waitdb", "internal/fairqueue"} {
		if slices.Contains(deps, module+without) {
			t.Errorf("throttle imports %s", without)
		}
	}
}

// TestPackages_AsynqLayout: only internal/asynqdb and lua/asynq know asynq's keys.
func TestPackages_AsynqLayout(t *testing.T) {
	key, script := regexp.MustCompile(`asynq:\{`), regexp.MustCompile(`script\.New\("asynq/`)
	for _, path := range files(t, func(path string) bool {
		dir := filepath.ToSlash(filepath.Dir(path))
		return slices.Contains([]string{".go", ".lua"}, filepath.Ext(path)) && !slices.Contains([]string{"internal/asynqdb", "lua/asynq", "lua/asynq/include"}, dir) &&
			path != "packages_test.go" && !strings.HasPrefix(dir, "bench")
	}) {
		text := proctest.ReadFile(t, path)
		if found := key.FindString(text) + script.FindString(text); found != "" && (key.MatchString(text) || !strings.HasSuffix(path, "_test.go")) {
			t.Errorf("%s has %s, which is for internal/asynqdb alone", path, found)
		}
	}
}
