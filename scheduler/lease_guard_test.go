package scheduler

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/testutil/redistest"
)

// TestLease_OtherWorkersJob: a server whose job another worker has by now neither extends
// that worker's lease nor writes the job's result. While it has the job it does both.
func TestLease_OtherWorkersJob(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		results := make(chan error)
		write := make(chan string)
		client := asynq.NewClientFromRedisClient(rdb)
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		server, err := NewServer(rdb, Rules{RuleFor: func(context.Context, *asynq.Task) (Rule, error) { return Rule{}, nil }},
			asynq.Config{Concurrency: 1, Queues: map[string]int{"own": 1}, Logger: silent{}})
		must(err)
		must(server.Start(asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
			for text := range write {
				_, err := task.ResultWriter().Write([]byte(text))
				results <- err
			}
			return nil
		})))
		t.Cleanup(server.Shutdown)
		t.Cleanup(func() { close(write) })
		info, err := client.Enqueue(asynq.NewTask("job", nil), asynq.Queue("own"))
		must(err)
		write <- "mine"
		if err := <-results; err != nil {
			t.Error(err)
		}
		lease, hash := asynqdb.Key("own", asynqdb.Lease), asynqdb.Hash("own", info.ID)
		extend := func(want bool) {
			t.Helper()
			must(rdb.ZAdd(t.Context(), lease, redis.Z{Score: 1, Member: info.ID}).Err())
			end := float64(time.Now().Add(time.Minute).Unix())
			must(server.redis.ZAddXX(t.Context(), lease, redis.Z{Score: end, Member: info.ID}).Err())
			if got := rdb.ZScore(t.Context(), lease, info.ID).Val() == end; got != want {
				t.Errorf("the lease is extended: %v, want %v", got, want)
			}
		}
		extend(true)
		must(rdb.HSet(t.Context(), hash, "pending_since", "the dequeue of another worker").Err())
		extend(false)
		write <- "not mine"
		if err := <-results; !errors.Is(err, asynqdb.ErrNotActive) {
			t.Errorf("its result: %v, want %v", err, asynqdb.ErrNotActive)
		}
		if got := rdb.HGet(t.Context(), hash, "result").Val(); got != "mine" {
			t.Errorf("result %q, want that of before", got)
		}
	})
}
