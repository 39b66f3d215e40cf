package main

import (
	"bufio"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/testutil/redistest"
)

// TestREADME_ShowsProgram: the rules and the constructors there are those that run here, line by line.
func TestREADME_ShowsProgram(t *testing.T) {
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
func snippet(t *testing.T) string { return blocks(t)[0] }

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

// words is a text whatever spaces it is laid out with.
func words(text string) string { return strings.Join(strings.Fields(text), " ") }

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

// TestREADME_Feedback runs the program of README.md with its two lines for a 429. Its job is
// refused once, is called again when the Retry-After is over, and fails not once.
func TestREADME_Feedback(t *testing.T) {
	calls, refused := make(chan time.Time, 10), new(atomic.Bool)
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		calls <- time.Now()
		if !refused.Swap(true) {
			w.Header().Set("Retry-After", "2")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	defer api.Close()
	server := redistest.Run(t)
	host := strings.TrimPrefix(api.URL, "http://")
	dir := module(t)
	program := strings.NewReplacer("localhost:6379", server.Addr(), "api.example.com", host).Replace(withFeedback(t))
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	goRun(t, dir, "build", "-o", "feedback", ".")
	cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "feedback"))
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var first, second time.Time
	for _, at := range []*time.Time{&first, &second} {
		select {
		case *at = <-calls:
		case <-time.After(time.Minute):
			t.Fatal("the API was not called")
		}
	}
	if wait := second.Sub(first); wait < 2*time.Second {
		t.Errorf("the API was called again after %s, want 2s at least", wait)
	}
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("after an interrupt: %v", err)
	}
	if queue, err := asynq.NewInspectorFromRedisClient(rdb).GetQueueInfo("default"); err != nil || queue.FailedTotal != 0 || queue.Size != 0 {
		t.Errorf("%+v, %v: want the job done without a failure", queue, err)
	}
}

// module is a folder with a module that requires this one.
func module(t *testing.T) (dir string) {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	sums, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "go.sum"), sums, 0o600); err != nil {
		t.Fatal(err)
	}
	const headgate = "github.com/headgate/headgate"
	goRun(t, dir, "mod", "init", "example.com/library")
	goRun(t, dir, "mod", "edit", "-require="+headgate+"@v0.0.0", "-replace="+headgate+"="+root)
	return dir
}

// goRun runs the command go in a folder.
func goRun(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS="+os.Getenv("GOFLAGS")+" -mod=mod", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go %v: %v\n%s", args, err, out)
	}
}

// TestLibrary_OwnModule builds the program as a user would, and README.md's, in a module that
// requires this one, and runs it on a Redis.
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
	readme := filepath.Join(dir, "readme")
	if err := os.Mkdir(readme, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(readme, "main.go"), []byte(snippet(t)), 0o600); err != nil {
		t.Fatal(err)
	}
	goRun(t, dir, "vet", "./readme")

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
