package main

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/tasks"
)

// What is said of a job that ends by its error is what becomes of it.
func TestLogFailure(t *testing.T) {
	for err, want := range map[error]string{asynq.RevokeTask: "job dropped", asynq.SkipRetry: "job archived"} {
		var said bytes.Buffer
		w := &worker{log: slog.New(slog.NewTextHandler(&said, nil)), handlers: handlers{crawls: &tasks.CrawlHandler{}}}
		w.logFailure(t.Context(), asynq.NewTask("it", nil), fmt.Errorf("no permit: %w", err))
		if !strings.Contains(said.String(), want) {
			t.Errorf("of %v it says %s, want %q", err, said.String(), want)
		}
	}
}
