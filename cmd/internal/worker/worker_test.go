package worker

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/cmd/internal/config"
	"github.com/headgate/headgate/tasks"
)

// The log line of a failed job names the job's next state.
func TestLogFailure(t *testing.T) {
	for err, want := range map[error]string{asynq.RevokeTask: "job dropped", asynq.SkipRetry: "job archived"} {
		var said bytes.Buffer
		w := &Worker{log: slog.New(slog.NewTextHandler(&said, nil)), handlers: handlers{crawls: &tasks.CrawlHandler{}}}
		w.logFailure(t.Context(), asynq.NewTask("it", nil), fmt.Errorf("no permit: %w", err))
		if !strings.Contains(said.String(), want) || strings.Contains(said.String(), "skip retry") {
			t.Errorf("%v is logged as %s, want %q", err, said.String(), want)
		}
	}
}

// A job that a stopping worker interrupts goes back to its queue, and has not failed.
func TestLogJob_Stopping_PutBack(t *testing.T) {
	for stopping, want := range map[bool]string{false: "outcome=failed", true: `outcome="put back"`} {
		var said bytes.Buffer
		w := &Worker{log: slog.New(slog.NewTextHandler(&said, nil))}
		w.stopping.Store(stopping)
		ctx, cancel := context.WithCancel(t.Context())
		handler := asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error { cancel(); return ctx.Err() })
		_ = w.logJob(handler).ProcessTask(ctx, asynq.NewTask("it", nil))
		if !strings.Contains(said.String(), want) {
			t.Errorf("stopping %t: %s, want %s", stopping, said.String(), want)
		}
	}
}

// run runs a worker until the test ends.
func run(t *testing.T, c *config.Config, o Options) *Worker {
	t.Helper()
	w, err := New(c, o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- w.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the worker ended with %v", err)
		}
	})
	return w
}
