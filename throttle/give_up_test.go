package throttle_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/throttle"
)

// TestAllow_CallerGivesUp: of calls whose contexts end while Redis is slow, those not
// sent yet are never sent, and those under way give back what they took.
func TestAllow_CallerGivesUp(t *testing.T) {
	const n = 100
	for _, l := range []throttle.Limit{
		{Name: "l", Kind: throttle.Funnel, Rate: throttle.Every(time.Hour), Capacity: n},
		{Name: "l", Kind: throttle.SlidingLog, Rate: throttle.Rate{N: n, Per: throttle.Day}},
		{Name: "l", Kind: throttle.SlidingWindow, Rate: throttle.Rate{N: n, Per: throttle.Day}},
		{Name: "l", Kind: throttle.FixedWindow, Rate: throttle.Rate{N: n, Per: throttle.Week}},
		{Name: "l", Kind: throttle.Concurrency, Capacity: n, Lease: throttle.Day},
	} {
		t.Run(string(l.Kind), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, rdb := redistest.Mini(t)
				limiter := throttle.New(rdb, throttle.Options{})
				define(t, limiter, l)
				expect(t, "left at first", ask(t, limiter, "l", 0).Remaining, n)
				var slow atomic.Bool
				slow.Store(true)
				rdb.AddHook(redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
					err := next(ctx, cmd)
					if slow.Load() && strings.HasPrefix(cmd.Name(), "eval") {
						time.Sleep(time.Second) // it has taken, and its caller does not know yet
					}
					return err
				}))
				var all sync.WaitGroup
				for i := range n {
					if i == 1 {
						synctest.Wait() // the first is under way, so what follows is taken after it
					}
					all.Go(func() {
						ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
						defer cancel()
						if _, err := limiter.Allow(ctx, "l", "k"); !errors.Is(err, context.DeadlineExceeded) {
							t.Errorf("%v, want that the deadline is exceeded", err)
						}
					})
				}
				all.Wait()
				slow.Store(false)
				time.Sleep(time.Minute)
				synctest.Wait()
				// What leaked of a funnel meanwhile stays owed where another call took later: part
				// of a permit.
				if left := ask(t, limiter, "l", 0).Remaining; left < n-1 || left < n && l.Kind != throttle.Funnel {
					t.Errorf("%d of %d permits are left once all calls gave up", left, n)
				}
			})
		})
	}
}
