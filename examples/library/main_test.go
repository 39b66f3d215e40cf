package main

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/testutil/redistest"
)

var block = regexp.MustCompile("(?ms)^```go\n(.*?)^```")

// readmeProgram is the program in README.md.
func readmeProgram(t *testing.T) string {
	t.Helper()
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := block.FindAllStringSubmatch(string(readme), -1)
	if len(blocks) != 1 {
		t.Fatalf("README.md has %d blocks of Go, want one program", len(blocks))
	}
	return blocks[0][1]
}

// module is a folder with a module that uses this one. With a workspace of both, Go need not
// compile this module again, as it must for a replaced one. TestModules_NoReplace holds the difference.
func module(t *testing.T) (dir string) {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	goRun(t, dir, "mod", "init", "example.com/library")
	goRun(t, dir, "work", "init", ".", root)
	return dir
}

// goRun runs the command go in a folder, in the workspace there if it has one.
func goRun(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=") // not this module's, which has more modules
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go %v: %v\n%s", args, err, out)
	}
}

// TestLibrary_OwnModule builds the program as a user would, and README.md's, in a module that
// uses this one, and runs it on a Redis.
func TestLibrary_OwnModule(t *testing.T) {
	dir := module(t)
	text, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "main.go"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	goRun(t, dir, "build", "-o", "library", ".")
	folder := filepath.Join(dir, "readme")
	program := strings.Replace(readmeProgram(t), "package main\n", "package readme\n", 1) // so that Go compiles it and links nothing
	if err := errors.Join(os.Mkdir(folder, 0o700), os.WriteFile(filepath.Join(folder, "main.go"), []byte(program), 0o600)); err != nil {
		t.Fatal(err)
	}
	goRun(t, dir, "build", "./readme")

	server := redistest.Run(t)
	library := exec.CommandContext(t.Context(), filepath.Join(dir, "library"))
	library.Env = append(os.Environ(), "REDIS_URL=redis://"+server.Addr())
	library.Stderr = os.Stderr
	out, err := library.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := library.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for i := range 5 {
		if !lines.Scan() || lines.Text() != "calling api.example.com" {
			t.Errorf("line %d is %q, %v", i+1, lines.Text(), lines.Err())
		}
	}
	if err := library.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if lines.Scan() {
		t.Errorf("one more line: %q", lines.Text())
	}
	if err := library.Wait(); err != nil {
		t.Errorf("after an interrupt: %v", err)
	}
}
