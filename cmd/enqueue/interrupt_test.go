package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/cmd/internal/cli"
	"github.com/headgate/headgate/cmd/internal/jobspec"
	"github.com/headgate/headgate/internal/testutil/redistest"
)

// An interrupt ends a command that waits for lines.
func TestInterrupt_WithoutInput(t *testing.T) {
	t.Chdir(t.TempDir())
	input, lines := io.Pipe()
	defer input.Close()
	ctx, interrupt := context.WithCancel(t.Context())
	go func() {
		_, _ = io.WriteString(lines, "{\"type\":\"mine\"}\n") // returns when it is read
		interrupt()
	}()
	var stderr bytes.Buffer
	code := execute(ctx, []string{"-"}, cli.IO{In: input, Out: io.Discard, Err: &stderr})
	if code != 1 || !bytes.HasSuffix(stderr.Bytes(), []byte("enqueue: interrupted\n")) {
		t.Errorf("exit code %d: %s; want 1, interrupted", code, &stderr)
	}
}

// An interrupt while jobs are added is reported as one, although asynq returns another error.
func TestInterrupt_WhileAdding(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	_, rdb := redistest.Mini(t)
	rdb.AddHook(interrupted(interrupt))
	e, _ := newTestEnqueuer()
	e.use(rdb, func() error { return nil })
	err := e.add(ctx, given(jobspec.Job{Type: "mine"}), false)
	if !errors.Is(err, context.Canceled) || e.added != 0 {
		t.Errorf("%v, and %d are added; want %v", err, e.added, context.Canceled)
	}
}

// interrupted is a hook of a client that interrupts the command while it adds a job.
type interrupted func()

func (i interrupted) DialHook(next redis.DialHook) redis.DialHook { return next }

func (i interrupted) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(context.Context, redis.Cmder) error { return i.fail() }
}

func (i interrupted) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(context.Context, []redis.Cmder) error { return i.fail() }
}

func (i interrupted) fail() error {
	i()
	return errors.New("UNKNOWN: redis eval error: context canceled")
}
