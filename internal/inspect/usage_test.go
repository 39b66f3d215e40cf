package inspect_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/throttle"
)

// TestPeek: what an exhausted quota, a bucket in debt and occupied slots have left, and when the next
// permit comes.
func TestPeek(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newPendingWorld(t, nil)
		ctx, q := t.Context(), inspect.New(w.limiter)
		must(t, w.limiter.Define(ctx,
			throttle.Limit{Name: "daily", Kind: throttle.FixedWindow, Rate: throttle.PerDay(50)},
			throttle.Limit{Name: "tokens", Kind: throttle.TokenBucket, Rate: throttle.PerMinute(60), Capacity: 10},
			throttle.Limit{Name: "slots", Kind: throttle.Concurrency, Capacity: 3},
		))
		check := func(limit, want string) {
			t.Helper()
			u, err := q.Peek(ctx, limit, "k")
			must(t, err)
			got := fmt.Sprintf("%d of %d used, %d left, %d owed, next in %s", u.Used(), u.Capacity, u.Remaining, u.Owed, u.NextIn)
			if !u.Known {
				got += "?"
			}
			if got != want {
				t.Errorf("%s: %s, want %s", limit, got, want)
			}
		}
		check("tokens", "0 of 10 used, 10 left, 0 owed, next in 0s")
		now := time.Now().UTC()
		_, err := w.limiter.AllowN(ctx, "daily", "k", 50)
		must(t, err)
		check("daily", fmt.Sprint("50 of 50 used, 0 left, 0 owed, next in ", now.Truncate(throttle.Day).Add(throttle.Day).Sub(now)))
		d, err := w.limiter.AllowN(ctx, "tokens", "k", 10)
		must(t, err)
		check("tokens", "10 of 10 used, 0 left, 0 owed, next in 1s")
		must(t, w.limiter.Settle(ctx, d, "tokens", "k", 40))
		check("tokens", "10 of 10 used, 0 left, 30 owed, next in 31s")
		time.Sleep(1500 * time.Millisecond)
		check("tokens", "10 of 10 used, 0 left, 29 owed, next in 29.5s")
		for range 2 {
			_, err = w.limiter.Allow(ctx, "slots", "k")
			must(t, err)
		}
		check("slots", "2 of 3 used, 1 left, 0 owed, next in 0s?")
		if u, err := q.Peek(ctx, "none", "k"); u.Missing != "no such limit: none" || err != nil {
			t.Errorf("%+v, %v of a limit that does not exist", u, err)
		}
	})
}
