package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"testing"

	"github.com/headgate/headgate/internal/cli"
)

// An interrupt ends a command that waits for lines.
func TestInterruptWhileNothingComes(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_CACHE_HOME", home)
	input, lines := io.Pipe()
	defer input.Close()
	ctx, interrupt := context.WithCancel(t.Context())
	go func() {
		_, _ = io.WriteString(lines, "{\"type\":\"mine\"}\n") // returns when it is read
		interrupt()
	}()
	var stderr bytes.Buffer
	code := run(ctx, []string{"-"}, cli.IO{In: input, Out: io.Discard, Err: &stderr})
	if code != 1 || !bytes.HasSuffix(stderr.Bytes(), []byte("enqueue: interrupted\n")) {
		t.Errorf("exit code %d: %s; want 1, interrupted", code, &stderr)
	}
}

// An interrupt ends a command that adds jobs, and is called one: asynq's error is another.
func TestInterruptWhileJobsAreAdded(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	err := fill(ctx, interrupted(interrupt), slices.Values([]line{{}}), cli.NewBar(io.Discard, 0, ""))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v; want %v", err, context.Canceled)
	}
}

// interrupted is a sink whose command is interrupted while it adds a job.
type interrupted func()

func (i interrupted) add(context.Context, line) error {
	i()
	return errors.New("UNKNOWN: redis eval error: context canceled")
}
func (interrupted) send(context.Context)        {}
func (interrupted) flush(context.Context) error { return nil }
func (interrupted) added() int                  { return 0 }
func (interrupted) undo(context.Context) error  { return nil }
func (interrupted) close()                      {}
