package throttle_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/throttle"
	"github.com/headgate/headgate/throttle/throttletest"
)

// count returns the number of calls that were allowed.
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

// TestOrigins has the small systems that this project started from. Each gives what it was built
// for, and not what was wrong with it.
func TestOrigins(t *testing.T) {
	per := func(name string, kind throttle.Kind, n int, period time.Duration, capacity int) throttle.Limit {
		return throttle.Limit{Name: name, Kind: kind, Rate: throttle.Rate{N: n, Per: period}, Capacity: capacity}
	}
	onEvery(t, func(t *testing.T, s *stage) {
		define(t, s,
			per("reply", throttle.SlidingLog, 5, time.Minute, 0), per("funnel", throttle.Funnel, 1, 3*time.Second, 10),
			per("bucket", throttle.TokenBucket, 3, 10*time.Second, 5), per("minute", throttle.FixedWindow, 5, time.Minute, 0))
		// A sliding log that also counted denied calls, so that hammering kept a user out for ever.
		// Two calls in one millisecond were one.
		expect(t, "20 calls in one microsecond", count(t, s, "reply", "laoqian", 20), 5)
		for range 59 {
			s.wait(time.Second)
			expect(t, "hammering within the minute", count(t, s, "reply", "laoqian", 3), 0)
		}
		s.wait(time.Second)
		expect(t, "a minute later", count(t, s, "reply", "laoqian", 20), 5)
		// A funnel that lost the time in which less than one unit leaked, and overflowed after a long
		// time.
		expect(t, "20 at once in a funnel", count(t, s, "funnel", "k", 20), 10)
		passed := 0
		for range 30 {
			s.wait(time.Second)
			passed += count(t, s, "funnel", "k", 1)
		}
		expect(t, "in 30 s, at one per 3 s", passed, 10)
		expect(t, "a watering of 4", ask(t, s, "funnel", 4).RetryAfter, 12*time.Second)
		// A bucket whose refill lost fractions.
		passed = -count(t, s, "bucket", "k", 9)
		expect(t, "a full bucket", passed, -5)
		for range 100 {
			s.wait(time.Second)
			passed += count(t, s, "bucket", "k", 1)
		}
		expect(t, "in 100 s, at 3 per 10 s", passed, 25)
		// A fixed window lets twice as many through around an edge.
		s.wait(s.now.Truncate(time.Minute).Add(119 * time.Second).Sub(s.now))
		expect(t, "before the edge", count(t, s, "minute", "user", 9), 5)
		s.wait(time.Second)
		expect(t, "after the edge", count(t, s, "minute", "user", 9), 5)
	})
}

// TestSlidingWindow_Memory checks that a million permits a minute need bounded memory.
func TestSlidingWindow_Memory(t *testing.T) {
	limit := throttle.Limit{Name: "hits", Kind: throttle.SlidingWindow, Rate: throttle.PerMinute(1_000_000)}
	onEvery(t, func(t *testing.T, s *stage) {
		define(t, s, limit)
		var history []throttletest.Admission
		for i := range 400 {
			if d := ask(t, s, "hits", 5000+97*(i%50)); d.OK() {
				history = append(history, throttletest.Admission{At: d.At.UnixMicro(), Cost: d.Cost})
			}
			s.wait(time.Duration(150+i%100) * time.Millisecond)
		}
		must(t, throttletest.Check(limit, history))
		if busiest := throttletest.Busiest(history, time.Minute); busiest < 980_000 {
			t.Errorf("the busiest minute has %d, want most of a million", busiest)
		}
		for key, value := range snapshot(t, s) {
			if text, ok := value.(string); ok && len(text) > 62*20 {
				t.Errorf("%s takes %d bytes", key, len(text))
			}
		}
	})
}

// TestMeters_Expire checks that the key of every meter has an end.
func TestMeters_Expire(t *testing.T) {
	rdb := redistest.Real(t)
	l := throttle.New(rdb, throttle.Options{})
	define(t, l, threes...)
	for _, limit := range threes {
		count(t, l, limit.Name, "k", 4)
		_, err := l.Throttle(t.Context(), limit.Name, 2, 1, time.Second, 1)
		must(t, err)
	}
	keys := append(meterKeys(t, rdb, "hg:*:m:*"), meterKeys(t, rdb, "hg:*:cell:*")...)
	expect(t, "keys", len(keys), 2*len(threes))
	for _, key := range keys {
		if ttl := rdb.PTTL(t.Context(), key).Val(); ttl <= 0 {
			t.Errorf("%s has no end", key)
		}
	}
}

func meterKeys(t *testing.T, rdb redis.UniversalClient, pattern string) []string {
	t.Helper()
	keys, err := rdb.Keys(t.Context(), pattern).Result()
	must(t, err)
	return keys
}
