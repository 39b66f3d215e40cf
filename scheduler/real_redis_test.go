package scheduler

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/throttle"
)

// On a real redis-server, and on a Redis Cluster, whose nodes refuse scripts
// that leave their slot: jobs are denied on their last attempt, come back in
// order, and keep their Unique locks.
func TestOnRealRedis(t *testing.T) {
	slow(t)
	kinds := map[string]func(t *testing.T) redis.UniversalClient{
		"one server": func(t *testing.T) redis.UniversalClient { return redistest.Real(t) },
		"cluster": func(t *testing.T) redis.UniversalClient {
			rdb := redistest.RunCluster(t).Client()
			t.Cleanup(func() { _ = rdb.Close() })
			return rdb
		},
	}
	for name, connect := range kinds {
		t.Run(name, func(t *testing.T) {
			rdb := connect(t)
			done := make(chan string, 20)
			handle := func(ctx context.Context, _ *asynq.Task) error {
				id, _ := asynq.GetTaskID(ctx)
				done <- id
				return nil
			}
			limit := throttle.Limit{Name: "api", Kind: throttle.Funnel, Rate: throttle.PerSecond(50), Capacity: 1}
			st := start(t, rdb, settings{config: asynq.Config{Concurrency: 1}, limits: []throttle.Limit{limit}, handle: handle})
			var want, got []string
			for i := range cap(done) {
				id := fmt.Sprintf("job-%02d", i)
				st.enqueue(asynq.NewTask("job", []byte(id)), asynq.TaskID(id), asynq.MaxRetry(0), asynq.Unique(time.Minute))
				want = append(want, id)
			}
			for range want {
				got = append(got, <-done)
			}
			if !slices.Equal(got, want) {
				t.Errorf("order %v, want %v", got, want)
			}
			st.server.Shutdown()
			wantNotOver(t, limit, time.Time{}, st)
			if len(st.limiter.denials) == 0 {
				t.Error("no job was denied: the test shows nothing")
			}
			if queue, err := st.tasks.GetQueueInfo("default"); err != nil || queue.Size != 0 || queue.FailedTotal != 0 {
				t.Errorf("queue: %+v, %v; want it empty, and no failure", queue, err)
			}
		})
	}
}
