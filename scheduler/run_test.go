//go:build unix

package scheduler

import (
	"context"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/throttle"
)

// TestRun_StopsDispatcherFirst: a server that gets a signal stops to lead before its last jobs end.
func TestRun_StopsDispatcherFirst(t *testing.T) {
	signals := make(chan os.Signal, 1) // so that a signal before Run listens does not end the process
	signal.Notify(signals, syscall.SIGTERM)
	defer signal.Stop(signals)
	_, rdb := redistest.Mini(t)
	s := newServer(t, rdb, []throttle.Limit{perMinute(60, 10)}, asynq.Config{})
	add(t, rdb, "it")
	done := make(chan error, 1)
	err := s.Run(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		for !s.scopes[0].stats.IsLeader.Load() {
			runtime.Gosched()
		}
		for s.scopes[0].stats.IsLeader.Load() && ctx.Err() == nil {
			_ = syscall.Kill(os.Getpid(), syscall.SIGTERM)
			runtime.Gosched()
		}
		done <- ctx.Err()
		return nil
	}))
	if err != nil {
		t.Error(err)
	}
	if <-done != nil {
		t.Error("it led until the job was interrupted")
	}
}
