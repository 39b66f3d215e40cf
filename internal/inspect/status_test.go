package inspect_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/throttle"
)

// TestStatus_Failed_CountsJobs: a job counts as failed once, and not if a later attempt succeeds.
func TestStatus_Failed_CountsJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, rdb := redistest.Mini(t)
		quiet := slog.New(slog.DiscardHandler)
		policy := scheduler.RetryPolicy{Backoff: scheduler.Backoff{Base: time.Second, Jitter: scheduler.JitterNone}}
		server, err := scheduler.NewServer(rdb, scheduler.Rules{RuleFor: func(context.Context, *asynq.Task) (scheduler.Rule, error) {
			return scheduler.Rule{Retry: &policy}, nil
		}}, asynq.Config{Concurrency: 10, LogLevel: asynq.FatalLevel}, scheduler.WithLogger(quiet))
		must(t, err)
		must(t, server.Start(asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			retried, _ := asynq.GetRetryCount(ctx)
			if string(task.Payload()) == "never" || string(task.Payload()) == "later" && retried == 0 {
				return errors.New("broken")
			}
			return nil
		})))
		defer server.Shutdown()
		for payload, jobs := range map[string]int{"never": 10, "later": 7, "at once": 5} {
			for i := range jobs {
				_, err := scheduler.NewClient(rdb).Enqueue(asynq.NewTask("mail", []byte(payload)), asynq.TaskID(fmt.Sprint(payload, i)), asynq.MaxRetry(2))
				must(t, err)
			}
		}
		time.Sleep(time.Minute)
		q := inspect.New(rdb, waitdb.New(throttle.New(rdb, throttle.Options{Logger: quiet})), "default")
		status, err := q.Status(t.Context())
		must(t, err)
		want := inspect.QueueStatus{Queue: "default", Done: 12, Failed: 10, FailedAttempts: 37, Archived: 10}
		if status.Queues[0] != want {
			t.Errorf("%+v, want %+v", status.Queues[0], want)
		}
	})
}
