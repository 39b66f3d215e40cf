// Package proctest runs servers and processes for tests, reads their logs, and waits for them.
package proctest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// Log is the output of a server. It is safe for concurrent use.
type Log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// address finds where a server listens. It skips port 0, which Prometheus logs first.
var address = regexp.MustCompile(`(https?://|address="?)(127\.0\.0\.1:[1-9]\d*)`)

// URL waits until the log has an address of this machine.
func (l *Log) URL(t *testing.T) (url string) {
	t.Helper()
	Until(t, "address in the log", func() (bool, any) {
		found := address.FindStringSubmatch(l.String())
		if found == nil {
			return false, l
		}
		url = "http://" + found[2]
		if strings.HasPrefix(found[1], "http") {
			url = found[1] + found[2]
		}
		return true, url
	})
	return url
}

// Start runs f until the test ends. If f returns an error, the test fails and prints the log.
func Start(t *testing.T, log *Log, f func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("it ended with %v:\n%s", err, log)
		}
	})
}

// Process runs a program until the test ends. The test fails if the program fails.
func Process(t *testing.T, env []string, program string, args ...string) *Log {
	t.Helper()
	log := new(Log)
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr, cmd.Env = log, log, append(os.Environ(), env...)
	if err := cmd.Start(); err != nil {
		t.Fatalf("%v: make deps installs what the tests start", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		defer cmd.Process.Kill() //nolint:errcheck // it has ended already, unless the wait has failed
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Error(err)
		}
		Until(t, "end of "+program, func() (bool, any) {
			select {
			case err := <-ended:
				if cmd.ProcessState.ExitCode() > 0 {
					t.Errorf("%s: %v", program, err)
				}
				return true, nil
			default:
				return false, log
			}
		})
		if t.Failed() {
			t.Logf("%s said:\n%s", program, log)
		}
	})
	return log
}

// Get returns the status and the text of an answer, or 0 and the error.
func Get(t *testing.T, url string) (status int, text string) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// ReadFile returns the text of a file.
func ReadFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Replace writes a file in one step, so that a watcher never reads half of it.
func Replace(t *testing.T, path, text string) {
	t.Helper()
	draft := path + ".new"
	if err := errors.Join(os.WriteFile(draft, []byte(text), 0o644), os.Rename(draft, path)); err != nil {
		t.Fatal(err)
	}
}
