//go:build unix

package tasks

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hibiken/asynq"
)

// shell returns a handler whose command is a shell script. The payload is $1.
func shell(script string, more func(*Command)) *ExecHandler {
	c := Command{Args: func(_ context.Context, task *asynq.Task) ([]string, error) {
		return []string{"sh", "-c", script, "sh", string(task.Payload())}, nil
	}}
	if more != nil {
		more(&c)
	}
	return &ExecHandler{Commands: map[string]Command{"it": c}}
}

func (h *ExecHandler) process(t *testing.T, payload string) error {
	t.Helper()
	return h.ProcessTask(t.Context(), asynq.NewTask("exec:it", []byte(payload)))
}

func TestExecErrors(t *testing.T) {
	tests := []struct {
		name, script string
		more         func(*Command)
		want, class  string
		archived     bool
	}{
		{name: "fine", script: "exit 0"},
		{name: "fine, and a child holds the output", script: "sleep 1000 & exit 0"},
		{name: "exit code", script: "echo oh no >&2; exit 3", want: "command it: exit code 3: oh no", class: "exit:3"},
		{name: "signal", script: "kill -TERM $$", want: "command it: signal: terminated", class: ClassKilled},
		{name: "no end", script: "sleep 60", more: func(c *Command) { c.Timeout = 50 * time.Millisecond }, want: "no end within 50ms", class: ClassKilled},
		{name: "no time to start", script: "exit 0", more: func(c *Command) { c.Timeout = 1 }, want: "no end within 1ns", class: ClassKilled},
		{name: "endless output", script: "yes", more: func(c *Command) { c.MaxOutput = 1000 }, want: "more than 1000 bytes of output", archived: true},
		{name: "endless errors", script: "for i in $(seq 5000); do echo $i >&2; done; exit 1", want: "4999\n5000", class: "exit:1"},
		{name: "errors that are no text", script: `printf 'a\377b' >&2; exit 1`, want: "a\uFFFDb", class: "exit:1"},
		{name: "no such folder", script: "exit 0", more: func(c *Command) { c.Dir = "/nonexistent" }, want: "no such file or directory", archived: true},
		{name: "no such program", more: func(c *Command) {
			c.Args = func(context.Context, *asynq.Task) ([]string, error) { return []string{"headgate-none"}, nil }
		}, want: "executable file not found", archived: true},
		{name: "no arguments", more: func(c *Command) {
			c.Args = func(context.Context, *asynq.Task) ([]string, error) { return nil, nil }
		}, want: "command it: no arguments: want at least the program", archived: true},
		{name: "no secret", script: "exit 0", more: func(c *Command) { c.Env = []string{"T=${env:HEADGATE_NONE}"} }, want: "secret env:HEADGATE_NONE is not set"},
		{name: "a secret that is printed", script: `echo $T >&2; exit 1`, more: func(c *Command) { c.Env = []string{"T=${env:HEADGATE_SECRET}"} }, want: "exit code 1: ${env:HEADGATE_SECRET}", class: "exit:1"},
	}
	t.Setenv("HEADGATE_SECRET", "hunter2hunter2")
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := shell(tt.script, tt.more).process(t, "{}")
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
			if Class(err) != tt.class || errors.Is(err, asynq.SkipRetry) != tt.archived {
				t.Errorf("class %q, archived %v; want %q, %v", Class(err), errors.Is(err, asynq.SkipRetry), tt.class, tt.archived)
			}
			if err != nil && len(err.Error()) > maxErrorText+100 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
		})
	}
}

// Processes that a command has started end with it, at its timeout and at its end.
func TestExec_KillsChildren(t *testing.T) {
	for script, timeout := range map[string]time.Duration{
		"sleep 1000 & echo $! >$PID; wait":           100 * time.Millisecond,
		"sleep 1000 >/dev/null 2>&1 & echo $! >$PID": time.Hour,
	} {
		file := filepath.Join(t.TempDir(), "pid")
		var pid int
		for ; pid == 0; timeout *= 2 { // a busy machine may start the child late
			_ = shell(script, func(c *Command) { c.Env, c.Timeout = []string{"PID=" + file}, timeout }).process(t, "{}")
			text, _ := os.ReadFile(file)
			_, _ = fmt.Sscan(string(text), &pid)
		}
		for gone := false; !gone; { // it was sent a SIGKILL; init has yet to bury it
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			gone = err != nil || strings.Contains(string(stat), ") Z ")
			gone = gone || syscall.Kill(pid, 0) == syscall.ESRCH
		}
	}
}

func TestExecResults(t *testing.T) {
	for out, want := range map[string]string{
		`{"file":"a.png","n":1}` + "\n": `{"file":"a.png","n":1}`,
		"plain text\n":                  `"plain text"`,
		"":                              `""`,
		"\xff\x00":                      `{"base64":"/wA="}`,
		"<a&b>":                         `"<a&b>"`,
	} {
		got, err := marshal(outputResult([]byte(out)))
		if diff := cmp.Diff(want, string(got)); diff != "" || err != nil {
			t.Errorf("%q: %v %s", out, err, diff)
		}
	}
}

// A job is archived if its command can never start, but not if the system is full.
func TestExec_StartErrors(t *testing.T) {
	for number, archived := range map[syscall.Errno]bool{
		syscall.ENOENT: true, syscall.EACCES: true,
		syscall.EAGAIN: false, syscall.ENOMEM: false, syscall.EMFILE: false, syscall.ENFILE: false,
	} {
		err := startError(&os.PathError{Op: "fork/exec", Path: "/bin/it", Err: number})
		if !errors.Is(err, number) || errors.Is(err, asynq.SkipRetry) != archived {
			t.Errorf("%v: want it archived: %v", err, archived)
		}
	}
}

// A secret that is the beginning of another does not show the other's end.
func TestExec_SecretsWithOnePrefix_AreHidden(t *testing.T) {
	t.Setenv("HEADGATE_SHORT", "prefix12")
	t.Setenv("HEADGATE_LONG", "prefix12SECRETTAIL")
	h := shell(`printf %s "$B"; exit 0`, func(c *Command) {
		c.Env = []string{"A=${env:HEADGATE_SHORT}", "B=${env:HEADGATE_LONG}"}
	})
	c := h.Commands["it"]
	args, _ := c.Args(t.Context(), asynq.NewTask("exec:it", nil))
	if out, err := h.run(t.Context(), "it", c, args); err != nil || string(out) != "${env:HEADGATE_LONG}" {
		t.Errorf("printed %q, %v", out, err)
	}
}

// The kept end of a command's error output has no part of a secret, wherever it begins.
func TestExec_CutStderr_HidesSecrets(t *testing.T) {
	const value = "0123456789SECRETTAIL"
	t.Setenv("T", value)
	for after := maxStderr - len(value) - 1; after <= maxStderr+1; after++ {
		for _, often := range []int{1, after / len(value)} { // references are shorter than the secret
			script := fmt.Sprintf(`printf 'x%%s' "$T" >&2; for i in $(seq %d); do printf %%s "$T" >&2; done; printf %%0%dd 0 >&2; exit 1`,
				often-1, after-(often-1)*len(value))
			h := shell(script, func(c *Command) { c.Env = []string{"T=${env:T}"} })
			said := h.process(t, "{}").Error()
			if strings.Contains(said, "L0") || strings.Contains(said, "L$") || len(said) > maxStderr+100 {
				t.Errorf("%d times, %d bytes after the first: %.200s", often, after, said)
			}
		}
	}
}
