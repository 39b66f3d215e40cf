package stats

import (
	"context"
	"fmt"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// BenchmarkPending looks at so many pending jobs of one queue, each of a host of its own.
func BenchmarkPending(b *testing.B) {
	for _, jobs := range []int{200, 20_000, 200_000} {
		b.Run(fmt.Sprint("jobs=", jobs), func(b *testing.B) {
			rdb := redistest.Real(b)
			ctx := b.Context()
			client := asynq.NewClientFromRedisClient(rdb)
			if _, err := client.Enqueue(asynq.NewTask("mail", []byte(`{"url":"https://example.com/"}`)), asynq.TaskID("0")); err != nil {
				b.Fatal(err)
			}
			message, err := rdb.HGet(ctx, asynqdb.Hash("default", "0"), "msg").Result()
			if err != nil {
				b.Fatal(err)
			}
			for from := 1; from < jobs; from += 1000 {
				pipe := rdb.Pipeline()
				for i := from; i < min(jobs, from+1000); i++ {
					pipe.HSet(ctx, asynqdb.Hash("default", fmt.Sprint(i)), "msg", message, "state", "pending")
					pipe.LPush(ctx, asynqdb.Key("default", asynqdb.Pending), i)
				}
				if _, err := pipe.Exec(ctx); err != nil {
					b.Fatal(err)
				}
			}
			limiter := waitdb.New(throttle.New(rdb, throttle.RedisOptions{}))
			rule := func(_ context.Context, job throttle.JobID, _ *asynq.Task) (Requirements, bool) {
				return Requirements{Needs: []throttle.Need{{Limit: "day"}, {Limit: "host", Key: job.ID}}}, true
			}
			for b.Loop() {
				if _, err := ReadPending(ctx, rdb, limiter, []string{"default"}, rule); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
