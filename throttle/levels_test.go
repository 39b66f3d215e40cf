package throttle_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/throttle"
)

func TestLevels(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		ctx := t.Context()
		limiter := throttle.New(rdb, throttle.RedisOptions{})
		err := limiter.Define(ctx,
			throttle.Limit{Name: "hourly", Kind: throttle.SlidingLog, Rate: throttle.Rate{N: 5, Per: time.Hour}},
			throttle.Limit{Name: "slots", Kind: throttle.Concurrency, Capacity: 3})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if d, err := limiter.AllowAll(ctx, throttle.Need{Limit: "hourly", Key: "a"}, throttle.Need{Limit: "slots"}); !d.OK() {
				t.Fatal(d, err)
			}
		}
		for _, key := range []string{"a", "b"} {
			if err := limiter.Block(ctx, "hourly", key, time.Now().Add(time.Hour)); err != nil {
				t.Fatal(err)
			}
		}
		if err := limiter.Pause(ctx, "slots"); err != nil {
			t.Fatal(err)
		}
		got, err := limiter.Levels(ctx, throttle.Need{Limit: "hourly", Key: "a"}, throttle.Need{Limit: "gone"},
			throttle.Need{Limit: "hourly"}, throttle.Need{Limit: "slots"})
		want := []throttle.Level{
			{Limit: "hourly", Key: "a", Used: 2, Capacity: 5, Blocked: 2, PerSecond: 5.0 / 3600},
			{Limit: "hourly", Used: 0, Capacity: 5, Blocked: 2, PerSecond: 5.0 / 3600},
			{Limit: "slots", Used: 2, Capacity: 3, Paused: true},
		}
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
		if _, err := limiter.Levels(ctx, throttle.Need{Limit: "a b"}); err == nil {
			t.Error("a name that is none was taken")
		}
	})
}
