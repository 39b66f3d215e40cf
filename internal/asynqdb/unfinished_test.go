package asynqdb_test

import (
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/testutil/redistest"
)

// TestCountUnfinished: jobs count while they are pending, scheduled, in a group, or in a set that a
// server aggregates.
func TestCountUnfinished(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		client := asynq.NewClientFromRedisClient(rdb)
		for _, opts := range [][]asynq.Option{nil, {asynq.ProcessIn(time.Hour)}, {asynq.Group("a")}, {asynq.Group("b")}, {asynq.Group("b")}} {
			if _, err := client.Enqueue(asynq.NewTask("job", nil), opts...); err != nil {
				t.Fatal(err)
			}
		}
		count := func(want int64) {
			t.Helper()
			if n, err := asynqdb.New(rdb).CountUnfinished(t.Context(), []string{"default", "other"}); n != want || err != nil {
				t.Errorf("%d, %v; want %d", n, err, want)
			}
		}
		count(5)
		// As asynq's server does when it aggregates a group.
		group, set := asynqdb.Key("default", "g:b"), asynqdb.Key("default", "g:b:set")
		for _, err := range []error{
			rdb.Rename(t.Context(), group, set).Err(),
			rdb.SRem(t.Context(), asynqdb.Key("default", asynqdb.Groups), "b").Err(),
			rdb.ZAdd(t.Context(), asynqdb.Key("default", asynqdb.AggregationSets), redis.Z{Score: 1, Member: set}).Err(),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		count(5)
	})
}
