package throttle_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/throttle"
	"github.com/headgate/headgate/throttle/throttletest"
)

// TestOrigins: the small systems that this project started from. Each gives
// what it was built for, and not what was wrong with it.
func TestOrigins(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Run("S1", testSimpleSlidingWindow)
	t.Run("S2", testSlidingWindowForLargeCounts)
	t.Run("S3", testFunnelOnOneMachine)
	t.Run("S4", testFunnelOnRedis)
	t.Run("S5", testRedisCell)
	t.Run("S6", testCounters)
	t.Run("S7", testTokenBucketInRedis)
	t.Run("S8", testFixedWindowPerMinute)
	t.Run("S9", testSlidingWindowInOneScript)
}

// count is how many of the calls were allowed.
func count(t *testing.T, l interface {
	Allow(ctx context.Context, limit, key string) (throttle.Decision, error)
}, limit, key string, calls int) (passed int) {
	t.Helper()
	for range calls {
		d, err := l.Allow(t.Context(), limit, key)
		must(t, err)
		if d.OK() {
			passed++
		}
	}
	return passed
}

// eternal lists the keys of meters that would never expire.
func eternal(t *testing.T, rdb redis.UniversalClient) (keys []string) {
	t.Helper()
	all, err := rdb.Keys(t.Context(), "hg:*:m:*").Result()
	must(t, err)
	cells, err := rdb.Keys(t.Context(), "hg:*:cell:*").Result()
	must(t, err)
	for _, key := range append(all, cells...) {
		if ttl := rdb.PTTL(t.Context(), key).Val(); ttl <= 0 {
			keys = append(keys, key)
		}
	}
	return keys
}

// testSimpleSlidingWindow: at most max_count actions per period and user. Its
// log also counted denied calls, so hammering kept a user out for ever, and two
// calls in one millisecond were one.
func testSimpleSlidingWindow(t *testing.T) {
	onEvery(t, func(t *testing.T, s *stage) {
		define(t, s, throttle.Limit{Name: "reply", Kind: throttle.SlidingLog, Rate: throttle.PerMinute(5)})
		expect(t, "20 calls in one microsecond", count(t, s, "reply", "laoqian", 20), 5)
		for range 59 {
			s.wait(time.Second)
			expect(t, "hammering within the minute", count(t, s, "reply", "laoqian", 3), 0)
		}
		s.wait(time.Second)
		expect(t, "a minute later, for all the hammering", count(t, s, "reply", "laoqian", 20), 5)
	})
	t.Run("cold users cost no memory", func(t *testing.T) {
		s := miniStage(t)
		define(t, s, throttle.Limit{Name: "reply", Kind: throttle.SlidingLog, Rate: throttle.PerMinute(5)})
		for user := range 10 {
			count(t, s, "reply", fmt.Sprint(user), 7)
		}
		s.wait(2*time.Minute + time.Second) // a minute more, for clocks that step back
		expect(t, "keys", s.rdb.Keys(t.Context(), "hg:*:m:*").Val(), nil)
	})
}

// testSlidingWindowForLargeCounts: 1,000,000 per 60 s in memory that does not
// grow with the count.
func testSlidingWindowForLargeCounts(t *testing.T) {
	limit := throttle.Limit{Name: "hits", Kind: throttle.SlidingWindow, Rate: throttle.PerMinute(1_000_000)}
	onEvery(t, func(t *testing.T, s *stage) {
		define(t, s, limit)
		var history []throttletest.Admission
		for i := range 400 {
			cost := 5000 + 97*(i%50)
			d, err := s.AllowN(t.Context(), "hits", "k", cost)
			must(t, err)
			if d.OK() {
				history = append(history, throttletest.Admission{At: d.At.UnixMicro(), Cost: cost})
			}
			s.wait(time.Duration(150+i%100) * time.Millisecond)
		}
		must(t, throttletest.Check(limit, history))
		if busiest := throttletest.Busiest(history, time.Minute); busiest < 980_000 {
			t.Errorf("the busiest minute has %d, want most of a million", busiest)
		}
		if s.rdb == nil {
			return
		}
		for key, value := range snapshot(t, s) {
			if text, ok := value.(string); ok && len(text) > 62*20 {
				t.Errorf("%s takes %d bytes", key, len(text))
			}
		}
	})
}

// testFunnelOnOneMachine: capacity 10, 20 calls at once. Its rate slipped from
// seconds to milliseconds, it overflowed after long idleness, and lost the time
// in which less than one unit leaked.
func testFunnelOnOneMachine(t *testing.T) {
	s := localStage()
	define(t, s, throttle.Limit{Name: "f", Kind: throttle.Funnel, Rate: throttle.Rate{N: 1, Per: 3 * time.Second}, Capacity: 10})
	expect(t, "20 at once", count(t, s, "f", "k", 20), 10)
	passed := 0
	for range 30 {
		s.wait(time.Second)
		passed += count(t, s, "f", "k", 1)
	}
	expect(t, "in 30 s of asking each second, at one per 3 s", passed, 10)
	s.wait(200 * 365 * 24 * time.Hour)
	expect(t, "after 200 years", count(t, s, "f", "k", 20), 10)
	d := ask(t, s, "f", 4)
	expect(t, "a watering of 4", d.RetryAfter, 12*time.Second)
}

// testFunnelOnRedis: as S3, shared by many processes that call at the same
// moment. Its reading, computing and writing raced.
func testFunnelOnRedis(t *testing.T) {
	server := redistest.Run(t)
	limit := throttle.Limit{Name: "f", Kind: throttle.Funnel, Rate: throttle.PerHour(1), Capacity: 10}
	var passed atomic.Int64
	var clients sync.WaitGroup
	for range 8 {
		rdb := server.Client()
		defer rdb.Close()
		l := throttle.New(rdb, throttle.Options{})
		define(t, l, limit)
		clients.Go(func() {
			for range 5 {
				if d, err := l.Allow(t.Context(), "f", "k"); err != nil {
					t.Error(err)
				} else if d.OK() {
					passed.Add(1)
				}
			}
		})
	}
	clients.Wait()
	expect(t, "of 40 calls from 8 clients", passed.Load(), 10)
}

// testRedisCell: CL.THROTTLE laoqian:reply 15 30 60. Its retry-after is -1 both
// when a call is allowed and when it never can be.
func testRedisCell(t *testing.T) {
	onEvery(t, func(t *testing.T, s *stage) {
		throttled := func(quantity int) throttle.Decision {
			t.Helper()
			d, err := s.Throttle(t.Context(), "laoqian:reply", 15, 30, time.Minute, quantity)
			must(t, err)
			return d
		}
		decision := func(o throttle.Outcome, cost, left int, retry, reset time.Duration) throttle.Decision {
			return throttle.Decision{
				Outcome: o, Key: "laoqian:reply", Cost: cost, Capacity: 16, Remaining: left, RetryAfter: retry, ResetAfter: reset, At: s.now,
			}
		}
		expect(t, "the first", throttled(1), decision(allowed, 1, 15, 0, 2*time.Second))
		for range 15 {
			expect(t, "up to the 16th", throttled(1).OK(), true)
		}
		expect(t, "the 17th", throttled(1), decision(denied, 1, 0, 2*time.Second, 32*time.Second))
		s.wait(2 * time.Second)
		expect(t, "after its retry-after", throttled(1).OK(), true)
		expect(t, "17 at once", throttled(17), decision(impossible, 17, 0, 0, 32*time.Second))
	})
}

// testCounters: at most 10 a second per address, and hits per user and day. A
// crash between INCR and EXPIRE left an eternal key, `> 10` let 11 through, and
// at the edge of a second twice as many.
func testCounters(t *testing.T) {
	second := throttle.Limit{Name: "ip", Kind: throttle.FixedWindow, Rate: throttle.PerSecond(10)}
	any1s := throttle.Limit{Name: "any", Kind: throttle.SlidingLog, Rate: throttle.PerSecond(10)}
	day := throttle.Limit{Name: "day", Kind: throttle.FixedWindow, Rate: throttle.PerDay(1_000_000), Zone: "Asia/Shanghai"}
	onEvery(t, func(t *testing.T, s *stage) {
		define(t, s, second, any1s, day)
		var history []throttletest.Admission
		for range 40 {
			expect(t, "a hit of the day", count(t, s, "day", "user", 1), 1)
			count(t, s, "ip", "192.0.2.1", 3)
			for range count(t, s, "any", "192.0.2.1", 3) {
				history = append(history, throttletest.Admission{At: s.now.UnixMicro(), Cost: 1})
			}
			s.wait(50 * time.Millisecond)
		}
		expect(t, "busiest second, over all edges", throttletest.Busiest(history, time.Second), 10)
		d, err := s.AllowN(t.Context(), "day", "user", 0)
		must(t, err)
		expect(t, "hits of the day", d.Capacity-d.Remaining, 40)
		s.wait(time.Second)
		expect(t, "20 at once", count(t, s, "ip", "192.0.2.1", 20), 10)
	})
	t.Run("no eternal keys", func(t *testing.T) {
		rdb := redistest.Real(t)
		l := throttle.New(rdb, throttle.Options{})
		define(t, l, append([]throttle.Limit{second, any1s, day}, threes...)...)
		for _, limit := range []string{"ip", "any", "day", "funnel", "bucket", "fixed", "log", "window", "running"} {
			count(t, l, limit, "k", 4)
			_, err := l.Throttle(t.Context(), limit, 2, 1, time.Second, 1)
			must(t, err)
		}
		expect(t, "keys", len(rdb.Keys(t.Context(), "hg:*:m:*").Val()), 9)
		expect(t, "keys without an end", eternal(t, rdb), nil)
	})
}

// testTokenBucketInRedis: policies defined once and shared. Its apps matched
// the ends of names, its refill lost fractions, and a second init refilled.
func testTokenBucketInRedis(t *testing.T) {
	policy := throttle.Limit{Name: "api", Kind: throttle.TokenBucket, Rate: throttle.Rate{N: 3, Per: 10 * time.Second}, Capacity: 5, Apps: []string{"foobar"}}
	onEvery(t, func(t *testing.T, s *stage) {
		app := s.as("foobar")
		define(t, app, policy)
		expect(t, "a full bucket", count(t, app, "api", "k", 9), 5)
		define(t, app, policy)
		expect(t, "a second init", count(t, app, "api", "k", 9), 0)
		passed := 0
		for range 100 {
			s.wait(time.Second)
			passed += count(t, app, "api", "k", 1)
		}
		expect(t, "in 100 s of asking each second, at 3 per 10 s", passed, 30)

		policy := policy
		policy.Capacity = 7
		define(t, app, policy)
		expect(t, "a changed policy", count(t, app, "api", "k", 9), 2)

		bar := s.as("bar")
		define(t, bar, policy)
		d, err := bar.Allow(t.Context(), "api", "k")
		must(t, err)
		expect(t, "an app that is only the end of a listed one", d.Outcome, noLimit)
		must(t, app.Delete(t.Context(), "api"))
		d, err = app.Allow(t.Context(), "api", "k")
		must(t, err)
		expect(t, "a deleted policy", d.Outcome, noLimit)
	})
	t.Run("Redis fails", func(t *testing.T) {
		server := redistest.Run(t)
		rdb := hasty(t, server)
		must(t, server.Stop())
		d, err := throttle.New(rdb, throttle.Options{}).Allow(t.Context(), "api", "k")
		if d.Outcome != throttle.Unavailable || !errors.Is(err, throttle.ErrUnavailable) {
			t.Errorf("%v, %v; want that it is unavailable", d, err)
		}
	})
}

// testFixedWindowPerMinute: 5 per user and aligned minute, anonymous users
// together. Around an edge a fixed window admits twice as many; a sliding log
// does not.
func testFixedWindowPerMinute(t *testing.T) {
	minute := throttle.Limit{Name: "minute", Kind: throttle.FixedWindow, Rate: throttle.PerMinute(5)}
	onEvery(t, func(t *testing.T, s *stage) {
		define(t, s, minute, throttle.Limit{Name: "sliding", Kind: throttle.SlidingLog, Rate: throttle.PerMinute(5)})
		s.wait(59 * time.Second)
		expect(t, "before the edge", count(t, s, "minute", "user", 9), 5)
		expect(t, "before the edge, sliding", count(t, s, "sliding", "user", 9), 5)
		s.wait(time.Second)
		expect(t, "after the edge", count(t, s, "minute", "user", 9), 5)
		expect(t, "after the edge, sliding", count(t, s, "sliding", "user", 9), 0)
		expect(t, "anonymous users", count(t, s, "minute", "", 4)+count(t, s, "minute", "", 4), 5)
		for range 10 {
			s.wait(time.Minute)
			expect(t, "a minute", count(t, s, "minute", "user", 9), 5)
		}
		if s.rdb != nil {
			keys := s.rdb.Keys(t.Context(), "hg:*:m:fixed_window:minute|user*").Val()
			expect(t, "keys of the user", len(keys), 1)
		}
	})
}

// testSlidingWindowInOneScript: as S1, and tells how many are left. It let
// limit + 1 pass, and gave milliseconds to an EXPIRE in seconds.
func testSlidingWindowInOneScript(t *testing.T) {
	onEvery(t, func(t *testing.T, s *stage) {
		define(t, s, throttle.Limit{Name: "reply", Kind: throttle.SlidingLog, Rate: throttle.PerMinute(5)})
		for left := 4; left >= 0; left-- {
			d := ask(t, s, "reply", 1)
			expect(t, "left", [2]any{d.Outcome, d.Remaining}, [2]any{allowed, left})
		}
		before := snapshot(t, s)
		for range 10 {
			d := ask(t, s, "reply", 1)
			expect(t, "denied", [2]any{d.Outcome, d.Remaining}, [2]any{denied, 0})
		}
		expect(t, "the trace of denied calls", snapshot(t, s), before)
	})
	t.Run("the log's end", func(t *testing.T) {
		rdb := redistest.Real(t)
		l := throttle.New(rdb, throttle.Options{})
		define(t, l, throttle.Limit{Name: "reply", Kind: throttle.SlidingLog, Rate: throttle.PerMinute(5)})
		ask(t, l, "reply", 1)
		ttl := rdb.PTTL(t.Context(), "hg:{default}:m:sliding_log:reply|k").Val()
		if ttl < time.Minute || ttl > 2*time.Minute {
			t.Errorf("expires in %s, want the period and a minute", ttl)
		}
	})
}
