package scheduler

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hibiken/asynq"
)

// TestIdempotencyKey: a job has the same key however often it is asked for and however its attempts
// end. The next job of the same ID has another key, and so has a job of the same ID in another
// queue.
func TestIdempotencyKey(t *testing.T) {
	var keys []string
	handle := func(ctx context.Context, _ *asynq.Task) error {
		key, err := IdempotencyKey(ctx)
		again, _ := IdempotencyKey(ctx)
		if keys = append(keys, key); err != nil || key == "" || again != key {
			t.Errorf("key %q, then %q, %v", key, again, err)
		}
		return []error{RetryAfter(time.Second), errors.New("it fails"), nil}[(len(keys)-1)%3]
	}
	config := retrying(asynq.Config{Concurrency: 1, Queues: map[string]int{"default": 1, "other": 1}}, time.Second)
	virtual(t, settings{config: config, rule: always(Rule{}), handle: handle}, func(t *testing.T, st *stack) {
		for _, queue := range []string{"default", "default", "other"} {
			st.enqueue(needing(""), asynq.TaskID("id"), asynq.Queue(queue), asynq.MaxRetry(1))
			time.Sleep(20 * time.Second)
		}
		for i, key := range keys {
			if same := key == keys[i/3*3]; !same || i >= 3 && key == keys[i-3] {
				t.Errorf("key %d is %q of %q", i, key, keys)
			}
		}
		if len(keys) != 9 {
			t.Errorf("%d attempts, want 9", len(keys))
		}
	})
	if key, err := IdempotencyKey(t.Context()); err == nil {
		t.Errorf("outside of a handler: %q", key)
	}
}
