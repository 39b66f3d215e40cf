package main

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/redistest"
)

// TestREADMEShowsThis: the rules and the constructors there are those that run here, line by line.
func TestREADMEShowsThis(t *testing.T) {
	program, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	_, shown, _ := strings.Cut(snippet(t), "\n\trules := ")
	shown, _, found := strings.Cut(shown, "\n\tif _, err := client")
	if !found {
		t.Fatal("README.md has no program that makes rules and enqueues")
	}
	rest := words(string(program))
	for line := range strings.Lines("rules := " + shown) {
		_, after, found := strings.Cut(rest, words(line))
		if !found {
			t.Fatalf("main.go does not have, or not in this place: %s", line)
		}
		rest = after
	}
}

// snippet is the program in README.md.
func snippet(t *testing.T) string {
	t.Helper()
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, shown, _ := strings.Cut(string(readme), "```go\n")
	shown, _, _ = strings.Cut(shown, "```")
	return shown
}

// words is a text whatever spaces it is laid out with.
func words(text string) string { return strings.Join(strings.Fields(text), " ") }

// TestInAModuleOfItsOwn builds the program as a user would, and README.md's, in a module that
// requires this one, and runs it on a Redis.
func TestInAModuleOfItsOwn(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for from, to := range map[string]string{"main.go": "main.go", filepath.Join(root, "go.sum"): "go.sum"} {
		text, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, to), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOFLAGS="+os.Getenv("GOFLAGS")+" -mod=mod", "GOWORK=off")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("go %v: %v\n%s", args, err, out)
		}
	}
	const headgate = "github.com/headgate/headgate"
	run("mod", "init", "example.com/library")
	run("mod", "edit", "-require="+headgate+"@v0.0.0", "-replace="+headgate+"="+root)
	run("build", "-o", "library", ".")
	readme := filepath.Join(dir, "readme")
	if err := os.Mkdir(readme, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(readme, "main.go"), []byte(snippet(t)), 0o600); err != nil {
		t.Fatal(err)
	}
	run("vet", "./readme")

	server := redistest.Run(t)
	program := exec.CommandContext(t.Context(), filepath.Join(dir, "library"))
	program.Env = append(os.Environ(), "REDIS_URL=redis://"+server.Addr())
	program.Stderr = os.Stderr
	out, err := program.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for i := range 5 {
		if !lines.Scan() || lines.Text() != "calling api.example.com" {
			t.Errorf("line %d is %q, %v", i+1, lines.Text(), lines.Err())
		}
	}
	if err := program.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if lines.Scan() {
		t.Errorf("one more line: %q", lines.Text())
	}
	if err := program.Wait(); err != nil {
		t.Errorf("after an interrupt: %v", err)
	}
}
