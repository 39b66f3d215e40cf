package scheduler

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/throttle"
)

// TestShutdown_InterruptedJobsKeepPosition: a job that a stopping server interrupts waits before all that
// came later, and not behind the whole backlog.
func TestShutdown_InterruptedJobsKeepPosition(t *testing.T) {
	of := settings{
		config: asynq.Config{Concurrency: 5, ShutdownTimeout: time.Second},
		limits: []throttle.Limit{funnel("api", 1, 1)},
		handle: func(ctx context.Context, task *asynq.Task) error {
			if string(task.Payload()) == "long" {
				<-ctx.Done()
			}
			return ctx.Err()
		},
	}
	virtual(t, of, func(t *testing.T, st *stack) {
		for i := range 30 {
			payload := ""
			if i == 3 {
				payload = "long"
			}
			st.enqueue(asynq.NewTask("job", []byte(payload)), asynq.TaskID(fmt.Sprint("job-", i)))
		}
		time.Sleep(8 * time.Second)
		st.server.Shutdown()
		of.handle = func(context.Context, *asynq.Task) error { return nil }
		next := start(t, st.rdb, of)
		time.Sleep(4 * time.Second)
		var ids []string
		for _, r := range next.ran() {
			ids = append(ids, r.id)
		}
		if len(ids) < 2 || ids[0] != "job-3" && ids[1] != "job-3" {
			t.Errorf("the next server ran %v, want job-3 among the first two", ids)
		}
		if info := st.info("job-3"); info != nil && info.Retried > 0 {
			t.Errorf("job-3 was retried %d times", info.Retried)
		}
	})
}
