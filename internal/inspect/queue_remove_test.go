package inspect

import (
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/throttle"
)

// Of a queue that is deleted nothing stays, the mark by which servers wake included.
func TestRemovedQueueLeavesNothing(t *testing.T) {
	m := miniredis.RunT(t)
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
	if _, err := scheduler.NewClient(rdb).Enqueue(asynq.NewTask("mine", nil)); err != nil {
		t.Fatal(err)
	}
	q := New(rdb, waitdb.New(throttle.New(rdb, throttle.Options{})), "default")
	defer q.Close()
	if jobs, err := q.Remove(t.Context(), "default"); jobs != 1 || err != nil {
		t.Errorf("removed %d jobs, %v", jobs, err)
	}
	if left := rdb.Keys(t.Context(), "asynq:*").Val(); len(left) > 0 {
		t.Errorf("left are %q", left)
	}
}
