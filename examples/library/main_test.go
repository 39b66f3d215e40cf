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

// blocks are the pieces of Go in README.md: the program, and the two lines for a 429.
func blocks(t *testing.T) (texts []string) {
	t.Helper()
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, match := range block.FindAllStringSubmatch(string(readme), -1) {
		texts = append(texts, match[1])
	}
	if len(texts) != 2 {
		t.Fatalf("README.md has %d blocks of Go, want the program and the two lines for a 429", len(texts))
	}
	return texts
}

// withFeedback is the program of README.md with its two lines for a 429, and a handler that
// makes a call.
func withFeedback(t *testing.T) string {
	t.Helper()
	texts := blocks(t)
	program, lines := texts[0], strings.SplitAfter(texts[1], "\n")
	const shown = `asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
		log.Printf("calling %s", task.Payload())
		return nil
	})`
	before, after, found := strings.Cut(program, "\terr = server.Run("+shown)
	if !found || len(lines) != 3 {
		t.Fatal("README.md has another handler, or not two lines for a 429")
	}
	return strings.Replace(before, `"log"`, "\"log\"\n\"net/http\"\n\n\"github.com/headgate/headgate/tasks\"", 1) +
		"mux := asynq.NewServeMux()\n" + lines[0] + `mux.HandleFunc("call", func(ctx context.Context, task *asynq.Task) error {
			resp, err := http.Get("http://" + string(task.Payload()))
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			` + lines[1] + "})\nerr = server.Run(mux" + after
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
	for name, program := range map[string]string{"readme": blocks(t)[0], "feedback": withFeedback(t)} {
		folder := filepath.Join(dir, name)
		program = strings.Replace(program, "package main\n", "package "+name+"\n", 1) // so that Go compiles it and links nothing
		if err := errors.Join(os.Mkdir(folder, 0o700), os.WriteFile(filepath.Join(folder, "main.go"), []byte(program), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	goRun(t, dir, "build", "./readme", "./feedback")

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
