package scheduler

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
)

// TestIdempotencyKey: a job has the same key however often it is asked and however its
// attempts end; the next job of the same ID has another, and so has one of the same ID
// in another queue.
func TestIdempotencyKey(t *testing.T) {
	keys := map[string][]string{} // by payload
	handle := func(ctx context.Context, task *asynq.Task) error {
		name := string(task.Payload())
		for range 2 {
			key, err := IdempotencyKey(ctx)
			if err != nil {
				return err
			}
			keys[name] = append(keys[name], key)
		}
		switch len(keys[name]) {
		case 2:
			return RetryAfter(time.Second)
		case 4:
			return errors.New("it fails")
		}
		return nil
	}
	config := asynq.Config{
		Concurrency: 1, Queues: map[string]int{"default": 1, "other": 1},
		RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return time.Second },
	}
	rule := func(*asynq.Task) (Rule, error) { return Rule{}, nil }
	virtual(t, settings{config: config, rule: rule, handle: handle}, func(t *testing.T, st *stack) {
		seen := map[string]bool{}
		for _, job := range []struct{ payload, queue string }{{"first", "default"}, {"second", "default"}, {"third", "other"}} {
			st.enqueue(NewTask("job", []byte(job.payload), asynq.TaskID("id"), asynq.Queue(job.queue)))
			time.Sleep(20 * time.Second)
			synctest.Wait()
			got := keys[job.payload]
			if len(got) != 6 {
				t.Fatalf("%s: %d keys in three attempts, want 6", job.payload, len(got))
			}
			for _, key := range got {
				if key != got[0] || seen[key] || key == "" {
					t.Errorf("%s: key %q after %q, and of another job %t", job.payload, key, got[0], seen[key])
				}
			}
			seen[got[0]] = true
		}
	})
	if key, err := IdempotencyKey(t.Context()); err == nil {
		t.Errorf("outside of a handler: %q", key)
	}
}
