package throttle_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/testutil/limittest"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/throttle"
	"github.com/headgate/headgate/throttle/throttletest"
)

// TestAllow_ManyClients has 16 goroutines of 4 clients hammer each kind of limit on
// one redis-server, while the scripts are flushed now and then, and judges by
// the server's clock what got through.
func TestAllow_ManyClients(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	for _, limit := range []throttle.Limit{
		{Name: "funnel", Kind: throttle.Funnel, Rate: throttle.Rate{N: 7, Per: 10 * time.Millisecond}, Capacity: 20},
		{Name: "spacing", Kind: throttle.Funnel, Rate: throttle.Every(1900 * time.Microsecond)},
		{Name: "bucket", Kind: throttle.TokenBucket, Rate: throttle.PerSecond(999), Capacity: 3, Margin: time.Millisecond},
		{Name: "fixed", Kind: throttle.FixedWindow, Rate: throttle.Rate{N: 30, Per: 50 * time.Millisecond}, Margin: 5 * time.Millisecond},
		{Name: "log", Kind: throttle.SlidingLog, Rate: throttle.Rate{N: 30, Per: 50 * time.Millisecond}},
		{Name: "window", Kind: throttle.SlidingWindow, Rate: throttle.Rate{N: 30, Per: 50 * time.Millisecond}},
		{Name: "running", Kind: throttle.Concurrency, Capacity: 5},
	} {
		t.Run(limit.Name, func(t *testing.T) {
			must(t, throttletest.Check(limit, hammer(t, limit, 50, 10)))
		})
	}
}

// TestAllow_ExactTotals: what does not come back while the test runs is handed out
// exactly once.
func TestAllow_ExactTotals(t *testing.T) {
	for _, limit := range []throttle.Limit{
		{Name: "fixed", Kind: throttle.FixedWindow, Rate: throttle.Rate{N: 100, Per: throttle.Month}},
		{Name: "log", Kind: throttle.SlidingLog, Rate: throttle.PerDay(100)},
		{Name: "window", Kind: throttle.SlidingWindow, Rate: throttle.PerDay(100)},
		{Name: "funnel", Kind: throttle.Funnel, Rate: throttle.PerDay(1), Capacity: 100},
	} {
		t.Run(limit.Name, func(t *testing.T) {
			sum := 0
			for _, a := range hammer(t, limit, 20, 0) {
				sum += a.Cost
			}
			expect(t, "permits", sum, 100)
		})
	}
}

// hammer has 16 goroutines call so often each, with costs of 1 and 2, and until so
// many calls were admitted. It returns what was admitted. Permits of a concurrency
// limit are given back.
func hammer(t *testing.T, limit throttle.Limit, calls, admitted int) []throttletest.Admission {
	t.Helper()
	server := redistest.Run(t)
	var mu sync.Mutex
	var history []throttletest.Admission
	enough := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(history) >= admitted
	}
	var callers sync.WaitGroup
	for client := range 4 {
		rdb := server.Client()
		defer rdb.Close()
		l := throttle.New(rdb, throttle.Options{})
		define(t, l, limit)
		for caller := range 4 {
			callers.Go(func() {
				for i := 0; i < calls || !enough(); i++ {
					if caller == 0 && i%10 == client {
						if err := rdb.ScriptFlush(t.Context()).Err(); err != nil {
							t.Error(err)
						}
					}
					cost := 1 + (i+caller)%2
					if limit.Kind == throttle.Funnel && limit.Capacity < 2 {
						cost = 1
					}
					d, err := l.AllowN(t.Context(), limit.Name, "k", cost)
					if err != nil {
						t.Error(err)
						return
					}
					if !d.OK() {
						continue
					}
					a := throttletest.Admission{At: d.At.UnixMicro(), Cost: cost}
					if d.Holder != "" {
						// It is held at least until Redis gets the call that frees it.
						now, err := rdb.Time(t.Context()).Result()
						if err != nil {
							t.Error(err)
						}
						a.Until = now.UnixMicro()
						if err := l.Free(t.Context(), d.Holder, throttle.Need{Limit: limit.Name, Key: "k", Cost: cost}); err != nil {
							t.Error(err)
						}
					}
					mu.Lock()
					history = append(history, a)
					mu.Unlock()
				}
			})
		}
	}
	callers.Wait()
	return history
}

// TestRedis_KeysExpire: meters of short periods leave nothing behind but the
// definitions, a minute after they are as if never used: a clock that steps back
// by less finds them.
func TestRedis_KeysExpire(t *testing.T) {
	rdb := redistest.Real(t)
	began := rdb.Time(t.Context()).Val()
	l := throttle.New(rdb, throttle.Options{})
	short := throttle.Rate{N: 3, Per: time.Millisecond}
	lasting := map[string]bool{"hg:{default}:limits": true, "hg:{default}:summaries": true, "hg:{default}:changes": true, "hg:{default}:changelog": true}
	for _, kind := range limittest.Kinds {
		limit := throttle.Limit{Name: string(kind), Kind: kind, Rate: short}
		if kind == throttle.Concurrency {
			limit.Rate, limit.Capacity, limit.Lease = throttle.Rate{}, 9, time.Second
		}
		lasting["hg:{default}:limit:"+limit.Name] = true
		define(t, l, limit)
		for cost := range 4 {
			_, err := l.AllowN(t.Context(), limit.Name, fmt.Sprint(cost), cost)
			must(t, err)
		}
	}
	_, err := l.Throttle(t.Context(), "k", 3, 3, time.Millisecond, 1)
	must(t, err)
	must(t, l.Block(t.Context(), "funnel", "k", time.Now().Add(time.Second)))
	for _, key := range rdb.Keys(t.Context(), "hg:*").Val() {
		ttl := rdb.PTTL(t.Context(), key).Val()
		took := rdb.Time(t.Context()).Val().Sub(began) // some of its minute is over on a machine that is busy
		switch {
		case lasting[key] && ttl >= 0:
			t.Errorf("%s ends in %s, want it to last", key, ttl)
		case !lasting[key] && (ttl < 59*time.Second-took || ttl > 62*time.Second):
			t.Errorf("%s ends in %s, want a minute after it has become as new", key, ttl)
		}
	}
}
