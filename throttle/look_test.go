package throttle_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/throttle"
)

// TestLookAtWhatIsShut: a pause or a block does not hide what is used.
func TestLookAtWhatIsShut(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		ctx := t.Context()
		limiter := throttle.New(rdb, throttle.RedisOptions{})
		must(t, limiter.Define(ctx, log(5)))
		_, err := limiter.AllowN(ctx, "log", "", 2)
		must(t, err)
		must(t, limiter.Pause(ctx, "log"))
		for _, key := range []string{"a", "b"} {
			must(t, limiter.Block(ctx, "log", key, time.Now().Add(time.Hour)))
		}
		got, err := limiter.Look(ctx, throttle.Need{Limit: "log"})
		must(t, err)
		want := throttle.Meter{Limit: "log", Capacity: 5, Left: 3, NextIn: time.Minute, Shut: true, Paused: true, Blocked: 2, PerSecond: got[0].PerSecond}
		expect(t, "paused", got, []throttle.Meter{want})
		if got[0].Used() != 2 {
			t.Errorf("%d permits are used, want 2", got[0].Used())
		}
	})
}
