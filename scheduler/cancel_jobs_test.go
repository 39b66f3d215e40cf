package scheduler

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/testutil/redistest"
)

// TestCancelJobs: a canceled job ends as with asynq's server, even if its handler goes on. Other jobs
// are not canceled, nor is a later attempt.
func TestCancelJobs(t *testing.T) {
	answer := func(plain bool) (text string) {
		synctest.Test(t, func(t *testing.T) {
			_, rdb := redistest.Mini(t)
			cfg := asynq.Config{Logger: silent{}, Concurrency: 3, RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return time.Hour }}
			var s asynqServer = asynq.NewServerFromRedisClient(rdb, cfg)
			if !plain {
				s = newServer(t, rdb, nil, cfg)
			}
			defer time.Sleep(2 * time.Minute) // until all handlers have returned
			defer s.Shutdown()
			causes := make(chan error, 6)
			handler := asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
				<-ctx.Done()
				causes <- errors.Join(ctx.Err(), context.Cause(ctx))
				if task.Type() == "goes on" {
					time.Sleep(time.Minute)
				}
				return ctx.Err()
			})
			client, inspector := asynq.NewClientFromRedisClient(rdb), asynq.NewInspectorFromRedisClient(rdb)
			for _, name := range []string{"stops", "goes on", "other"} {
				if _, err := client.Enqueue(asynq.NewTask(name, nil), asynq.TaskID(name)); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.Start(handler); err != nil {
				t.Fatal(err)
			}
			time.Sleep(3 * time.Second)
			for _, id := range []string{"stops", "goes on"} {
				if err := inspector.CancelProcessing(id); err != nil {
					t.Fatal(err)
				}
				text += fmt.Sprintln(<-causes)
			}
			time.Sleep(3 * time.Second)
			for _, id := range []string{"stops", "goes on", "other"} {
				info, err := inspector.GetTaskInfo("default", id)
				if err != nil {
					t.Fatal(err)
				}
				text += fmt.Sprintln(id, info.State, info.Retried, info.LastErr)
				_ = inspector.RunTask("default", id)
			}
			time.Sleep(3 * time.Second)
			text += fmt.Sprintln(len(causes), "canceled again")
		})
		return text
	}
	if got, want := answer(false), answer(true); got != want {
		t.Errorf("got\n%s\nwant what asynq does:\n%s", got, want)
	}
}
