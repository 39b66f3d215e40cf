package throttle_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/throttle"
)

func TestBlocks(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		ctx := t.Context()
		limiter := throttle.New(rdb, throttle.Options{})
		must(t, limiter.Define(ctx, log(5), throttle.Limit{Name: "a", Kind: throttle.Funnel, Rate: throttle.PerHour(1)}))
		now, err := rdb.Time(ctx).Result()
		must(t, err)
		until := now.Add(time.Hour).Truncate(time.Microsecond)
		must(t, limiter.Block(ctx, "log", "k|2", until.Add(time.Hour)))
		must(t, limiter.Block(ctx, "log", "", until))
		must(t, limiter.Block(ctx, "a", "k", until))
		must(t, limiter.Block(ctx, "log", "opened", until))
		must(t, limiter.Block(ctx, "log", "opened", now))
		got, err := limiter.Blocks(ctx, "log")
		must(t, err)
		expect(t, "blocked", got, []throttle.Blocked{{Key: "", Until: until}, {Key: "k|2", Until: until.Add(time.Hour)}})

		none, err := throttle.New(rdb, throttle.Options{Scope: "other"}).Blocks(ctx, "log")
		must(t, err)
		expect(t, "blocked in another scope", len(none), 0)
	})
}
