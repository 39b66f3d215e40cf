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

// TestLease_OtherWorkersJob: a server whose job another worker has by now neither extends that
// worker's lease nor writes the job's result. While it has the job it does both.
func TestLease_OtherWorkersJob(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		write, results := make(chan string), make(chan error)
		st := start(t, rdb, settings{rule: always(Rule{}), config: asynq.Config{Concurrency: 1}, handle: func(_ context.Context, task *asynq.Task) error {
			for text := range write {
				_, err := task.ResultWriter().Write([]byte(text))
				results <- err
			}
			return nil
		}})
		t.Cleanup(func() { close(write) })
		id := add(t, rdb, "it")
		lease, hash := asynqdb.Key("default", asynqdb.Lease), asynqdb.Hash("default", id)
		want := func(own bool) {
			t.Helper()
			write <- "own"
			if err := <-results; own && err != nil || !own && !errors.Is(err, asynqdb.ErrNotActive) {
				t.Errorf("written: %v", err)
			}
			end := float64(time.Now().Add(time.Minute).Unix())
			st.must(rdb.ZAdd(t.Context(), lease, redis.Z{Score: 1, Member: id}).Err())
			st.must(st.server.redis.ZAddXX(t.Context(), lease, redis.Z{Score: end, Member: id}).Err())
			if got := rdb.ZScore(t.Context(), lease, id).Val() == end; got != own {
				t.Errorf("the lease is extended: %v, want %v", got, own)
			}
		}
		want(true)
		st.must(rdb.HSet(t.Context(), hash, "pending_since", "the dequeue of another worker", "result", "another's").Err())
		want(false)
		if got := rdb.HGet(t.Context(), hash, "result").Val(); got != "another's" {
			t.Errorf("result %q, want the other worker's", got)
		}
	})
}
