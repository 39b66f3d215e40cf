package headgate_test

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// public lists the folders of the packages that programs can import, but for lua,
// which holds scripts.
func public(t *testing.T) (dirs []string) {
	t.Helper()
	for _, path := range files(t, func(path string) bool { return strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") }) {
		dir := filepath.Dir(path)
		root, _, _ := strings.Cut(dir, "/")
		if !slices.Contains([]string{"throttle", "scheduler", "tasks", "dashboards"}, root) || slices.Contains(dirs, dir) {
			continue
		}
		if !strings.Contains("\n"+read(t, path), "\npackage main\n") {
			dirs = append(dirs, dir)
		}
	}
	if len(dirs) < 10 {
		t.Fatalf("%d public packages: %v", len(dirs), dirs)
	}
	return dirs
}

// A newcomer sees what a package has without scrolling.
func TestDocFitsAScreen(t *testing.T) {
	const screen = 50
	for _, dir := range public(t) {
		out, err := exec.Command("go", "doc", "-short", "./"+dir).CombinedOutput()
		if lines := strings.Count(string(out), "\n"); err != nil || lines == 0 || lines > screen {
			t.Errorf("go doc -short ./%s has %d lines, %v; want at most %d", dir, lines, err, screen)
		}
	}
}

// Who wants schedules alone does not get the server, and the other way round.
func TestSchedulerAndCronAreApart(t *testing.T) {
	const module = "github.com/headgate/headgate/"
	for of, without := range map[string]string{"scheduler": "scheduler/cron", "scheduler/cron": "scheduler"} {
		out, err := exec.Command("go", "list", "-deps", "./"+of).Output()
		deps := strings.Fields(string(out))
		if err != nil || !slices.Contains(deps, module+of) || slices.Contains(deps, module+without) {
			t.Errorf("%s: %v; want it without %s, it has %v", of, err, without, deps)
		}
	}
}
