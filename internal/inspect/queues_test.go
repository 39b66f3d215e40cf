package inspect_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/throttle"
)

// TestDelete_WhileWorkersRun deletes all jobs of a queue until none is left. Each job has run once or
// was deleted, and later jobs run.
func TestDelete_WhileWorkersRun(t *testing.T) {
	const jobs = 400
	rdb := redistest.Real(t)
	ctx, quiet := t.Context(), slog.New(slog.DiscardHandler)
	limiter := waitdb.New(throttle.New(rdb, throttle.Options{Logger: quiet}))
	var mu sync.Mutex
	ran := map[string]int{}
	came := make(chan string, 2*jobs)
	start(t, rdb, 5, func(ctx context.Context, _ *asynq.Task) error {
		id, _ := asynq.GetTaskID(ctx)
		mu.Lock()
		defer mu.Unlock()
		ran[id]++
		came <- id
		return nil
	}, throttle.Limit{Name: "api", Kind: throttle.TokenBucket, Rate: throttle.PerSecond(200), Capacity: 10})
	enqueue(t, rdb, jobs)
	for range 50 {
		<-came
	}
	q := inspect.New(limiter)
	deleted := 0
	for {
		ids, err := q.Find(ctx, inspect.Delete, inspect.Filter{}, jobs)
		must(t, err)
		n, err := q.Apply(ctx, inspect.Delete, inspect.Filter{}, ids)
		must(t, err)
		deleted += n
		if info, err := q.ReadQueue(ctx, "default"); err == nil && info.Size == 0 {
			break
		}
	}
	_, err := scheduler.NewClient(rdb).Enqueue(asynq.NewTask("mail", nil), asynq.TaskID("after"))
	must(t, err)
	for id := range came {
		if id == "after" {
			break
		}
	}
	mu.Lock()
	defer mu.Unlock()
	for id, n := range ran {
		if n != 1 {
			t.Errorf("job %s ran %d times", id, n)
		}
	}
	if len(ran)-1+deleted != jobs {
		t.Errorf("%d jobs ran and %d were deleted, of %d", len(ran)-1, deleted, jobs)
	}
	if waiting, _, _, err := limiter.BacklogStats(ctx); waiting != 0 || err != nil {
		t.Errorf("%d wait still, %v", waiting, err)
	}
}

func TestRemove_LeavesNothing(t *testing.T) {
	_, rdb := redistest.Mini(t)
	if _, err := scheduler.NewClient(rdb).Enqueue(asynq.NewTask("mine", nil)); err != nil {
		t.Fatal(err)
	}
	q := inspect.New(waitdb.New(throttle.New(rdb, throttle.Options{})))
	if jobs, err := q.Remove(t.Context(), "default"); jobs != 1 || err != nil {
		t.Errorf("removed %d jobs, %v", jobs, err)
	}
	if left := rdb.Keys(t.Context(), "asynq:*").Val(); len(left) > 0 {
		t.Errorf("left are %q", left)
	}
}
