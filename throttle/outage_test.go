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

// hasty is a client that gives up at once when the server does not answer.
func hasty(t *testing.T, server *redistest.Server) *redis.Client {
	t.Helper()
	options := server.Options()
	options.MaxRetries = -1
	options.DialerRetries = 1
	options.PoolSize = 100 // a full pool would remember that the server was gone
	rdb := redis.NewClient(options)
	t.Cleanup(func() {
		if err := rdb.Close(); err != nil {
			t.Error(err)
		}
	})
	return rdb
}

// TestRedis_Outage checks that every method returns ErrUnavailable while Redis is down, and that
// permits in use are still in use when it is back.
func TestRedis_Outage(t *testing.T) {
	server := redistest.Run(t, "--appendonly", "yes", "--appendfsync", "always")
	l := throttle.New(hasty(t, server), throttle.Options{})
	define(t, l, log(3))
	ask(t, l, "log", 1)

	must(t, server.Stop())
	need := throttle.Need{Limit: "log", Key: "k"}
	for verb, call := range map[string]func(context.Context) error{
		"Allow":    func(ctx context.Context) error { _, err := l.Allow(ctx, "log", "k"); return err },
		"AllowAll": func(ctx context.Context) error { _, err := l.AllowAll(ctx, need); return err },
		"Peek":     func(ctx context.Context) error { _, err := l.AllowN(ctx, "log", "k", 0); return err },
		"Throttle": func(ctx context.Context) error { _, err := l.Throttle(ctx, "k", 1, 1, time.Second, 1); return err },
		"Extend":   func(ctx context.Context) error { _, err := l.Extend(ctx, "h", need); return err },
		"Free":     func(ctx context.Context) error { return l.Free(ctx, "h", need) },
		"Define":   func(ctx context.Context) error { return l.Define(ctx, log(3)) },
		"Set":      func(ctx context.Context) error { return l.Set(ctx, log(3)) },
		"Delete":   func(ctx context.Context) error { return l.Delete(ctx, "log") },
		"Limits":   func(ctx context.Context) error { _, err := l.Limits(ctx); return err },
		"Pause":    func(ctx context.Context) error { return l.Pause(ctx, "log") },
		"Resume":   func(ctx context.Context) error { return l.Resume(ctx, "log") },
		"Block":    func(ctx context.Context) error { return l.Block(ctx, "log", "k", time.Now()) },
		"Reset":    func(ctx context.Context) error { return l.Reset(ctx, "log", "k") },
	} {
		if err := call(t.Context()); !errors.Is(err, throttle.ErrUnavailable) || errors.Is(err, throttle.ErrNoLimit) {
			t.Errorf("%s without Redis: %v, want ErrUnavailable", verb, err)
		}
	}

	must(t, server.Restart())
	expect(t, "left when it is back", ask(t, l, "log", 1).Remaining, 1)
}

// TestRedis_NoMemory: an error of Redis itself is no decision either.
func TestRedis_NoMemory(t *testing.T) {
	rdb := redistest.Real(t)
	l := throttle.New(rdb, throttle.Options{})
	define(t, l, log(3))
	must(t, rdb.ConfigSet(t.Context(), "maxmemory", "1").Err())
	d, err := l.Allow(t.Context(), "log", "k")
	if !errors.Is(err, throttle.ErrUnavailable) || d.Outcome != throttle.Unavailable {
		t.Errorf("without memory: %v, %v; want ErrUnavailable", d, err)
	}
	must(t, rdb.ConfigSet(t.Context(), "maxmemory", "0").Err())
	expect(t, "left afterwards", ask(t, l, "log", 1).Remaining, 2)
}

// TestAllow_CanceledContext: a call that was given up is an unavailable limiter, too.
func TestAllow_CanceledContext(t *testing.T) {
	l := throttle.New(redistest.Real(t), throttle.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.Allow(ctx, "log", "k"); !errors.Is(err, throttle.ErrUnavailable) || !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want ErrUnavailable and Canceled", err)
	}
}

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
