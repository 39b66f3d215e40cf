package scheduler

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/throttle"
)

// An error's text that is not UTF-8 cannot be stored as it is. The job ends as with
// any other text, and asynq shows what of it is readable.
func TestErrors_NotUTF8(t *testing.T) {
	const bad, shown = "caf\xe9", "caf\uFFFD"
	tests := []struct {
		name   string
		handle func() error
		state  asynq.TaskState
		failed int // jobs of the queue
	}{
		{"RetryAfter", func() error { return fmt.Errorf(bad+": %w", RetryAfter(time.Hour)) }, asynq.TaskStateRetry, 0},
		{"Blocked", func() error { return fmt.Errorf(bad+": %w", RateLimited(time.Now().Add(time.Hour))) }, asynq.TaskStateRetry, 0},
		{"a failure", func() error { return errors.New(bad) }, asynq.TaskStateRetry, 1},
		{"SkipRetry", func() error { return fmt.Errorf(bad+": %w", asynq.SkipRetry) }, asynq.TaskStateArchived, 1},
		{"a panic", func() error { panic(bad) }, asynq.TaskStateRetry, 1},
	}
	config := idle
	config.RetryDelayFunc = func(int, error, *asynq.Task) time.Duration { return time.Hour }
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			handle := func(context.Context, *asynq.Task) error { return test.handle() }
			virtual(t, settings{config: config, limits: []throttle.Limit{perMinute(60, 10)}, handle: handle}, func(t *testing.T, st *stack) {
				id := st.enqueue(asynq.NewTask("job", nil, asynq.MaxRetry(3)))
				time.Sleep(25 * time.Second)
				if info := st.info(id); info == nil || info.State != test.state || !strings.Contains(info.LastErr, shown) {
					t.Errorf("job: %+v, want it %s with %q", info, test.state, shown)
				}
				if queue, err := st.tasks.GetQueueInfo("default"); err != nil || queue.FailedTotal != test.failed {
					t.Errorf("queue: %+v, %v; want %d failures", queue, err, test.failed)
				}
				time.Sleep(5 * time.Minute) // a lease would have ended
				st.wantOnceEach(1)
				for _, err := range st.reported {
					if isPanic := asynq.IsPanicError(err); isPanic != (test.name == "a panic") {
						t.Errorf("reported: %v, a panic of asynq's: %v", err, isPanic)
					}
				}
			})
		})
	}
	t.Run("a rule's", func(t *testing.T) {
		rule := func(*asynq.Task) (Rule, error) { return Rule{}, errors.New(bad) }
		virtual(t, settings{config: config, limits: []throttle.Limit{perMinute(60, 10)}, rule: rule}, func(t *testing.T, st *stack) {
			id := st.enqueue(asynq.NewTask("job", nil))
			time.Sleep(25 * time.Second)
			if info := st.info(id); info == nil || info.State != asynq.TaskStateRetry || info.LastErr != shown {
				t.Errorf("job: %+v, want it looked for again, with %q", info, shown)
			}
		})
	})
}
