package throttle_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/throttle"
	"github.com/headgate/headgate/throttle/throttletest"
)

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
		expect(t, "20 calls in one microsecond", count(t, s, "reply", 20), 5)
		for range 59 {
			s.wait(time.Second)
			expect(t, "hammering within the minute", count(t, s, "reply", 3), 0)
		}
		s.wait(time.Second)
		expect(t, "a minute later", count(t, s, "reply", 20), 5)
		// A funnel that lost the time in which less than one unit leaked, and overflowed after a long
		// time.
		expect(t, "20 at once in a funnel", count(t, s, "funnel", 20), 10)
		passed := 0
		for range 30 {
			s.wait(time.Second)
			passed += count(t, s, "funnel", 1)
		}
		expect(t, "in 30 s, at one per 3 s", passed, 10)
		expect(t, "a watering of 4", ask(t, s, "funnel", 4).RetryAfter, 12*time.Second)
		// A bucket whose refill lost fractions.
		passed = -count(t, s, "bucket", 9)
		expect(t, "a full bucket", passed, -5)
		for range 100 {
			s.wait(time.Second)
			passed += count(t, s, "bucket", 1)
		}
		expect(t, "in 100 s, at 3 per 10 s", passed, 25)
		// A fixed window lets twice as many through around an edge.
		s.wait(s.now.Truncate(time.Minute).Add(119 * time.Second).Sub(s.now))
		expect(t, "before the edge", count(t, s, "minute", 9), 5)
		s.wait(time.Second)
		expect(t, "after the edge", count(t, s, "minute", 9), 5)
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
		fewer := limit
		if fewer.Rate.N = 980_000; throttletest.Over(fewer, history) == 0 {
			t.Errorf("no minute has more than %d, want most of a million", fewer.Rate.N)
		}
		for key, value := range snapshot(t, s) {
			if text, ok := value.(string); ok && len(text) > 62*20 {
				t.Errorf("%s takes %d bytes", key, len(text))
			}
		}
	})
}

// TestFixedWindow_Calendar checks 2 permits per calendar period, across the clock changes of a
// zone, and far beyond the boundaries that Redis got at first.
func TestFixedWindow_Calendar(t *testing.T) {
	const zone = "America/New_York"
	for _, tt := range []struct {
		name      string
		rate      throttle.Rate
		now, next string
	}{
		{"hour", throttle.PerHour(2), "2026-11-20T12:30:00-05:00", "2026-11-20T13:00:00-05:00"},
		{"hour gone through twice", throttle.PerHour(2), "2026-11-01T01:10:00-04:00", "2026-11-01T02:00:00-05:00"},
		{"day of 25 hours", throttle.PerDay(2), "2026-11-01T00:00:00-04:00", "2026-11-02T00:00:00-05:00"},
		{"day of 23 hours", throttle.PerDay(2), "2027-03-14T00:00:00-05:00", "2027-03-15T00:00:00-04:00"},
		{"week", throttle.Rate{N: 2, Per: throttle.Week}, "2027-03-14T23:59:59-04:00", "2027-03-15T00:00:00-04:00"},
		{"month", throttle.Rate{N: 2, Per: throttle.Month}, "2031-02-01T00:00:00-05:00", "2031-03-01T00:00:00-05:00"},
		{"long before", throttle.PerDay(2), "1999-12-31T23:00:00-05:00", "2000-01-01T00:00:00-05:00"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			onEvery(t, func(t *testing.T, s *stage) {
				define(t, s, throttle.Limit{Name: "c", Kind: throttle.FixedWindow, Rate: tt.rate, Zone: zone})
				now, next := instant(t, tt.now), instant(t, tt.next)
				s.wait(now.Sub(s.now))
				expect(t, "the window", count(t, s, "c", 3), 2)
				d := ask(t, s, "c", 1)
				expect(t, "retry", d.RetryAfter, next.Sub(now))
				expect(t, "reset", d.ResetAfter, next.Sub(now))
				s.wait(d.RetryAfter - time.Microsecond)
				expect(t, "before the boundary", count(t, s, "c", 1), 0)
				s.wait(time.Microsecond)
				expect(t, "after it", count(t, s, "c", 3), 2)
			})
		})
	}
}

func instant(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	must(t, err)
	return at
}

// TestThrottle: the known answers that the tests of throttled and redis-cell
// publish, burst 5 and one per second.
func TestThrottle(t *testing.T) {
	onEvery(t, func(t *testing.T, s *stage) {
		for i, tt := range []struct {
			ms, quantity, remaining int
			reset, retry            float64
			limited                 bool
		}{
			{0, 6, 5, 0, -1, true},
			{0, 1, 4, 1, -1, false},
			{0, 1, 3, 2, -1, false},
			{0, 1, 2, 3, -1, false},
			{0, 1, 1, 4, -1, false},
			{0, 1, 0, 5, -1, false},
			{0, 1, 0, 5, 1, true},
			{3000, 1, 2, 3, -1, false},
			{3100, 1, 1, 3.9, -1, false},
			{4000, 1, 1, 4, -1, false},
			{8000, 1, 4, 1, -1, false},
			{9500, 1, 4, 1, -1, false},
			{9500, 0, 4, 1, -1, false},
			{9500, 2, 2, 3, -1, false},
			{9500, 5, 2, 3, 3, true},
			{15000, 6, 5, 0, -1, true},
		} {
			s.wait(noon.Add(time.Duration(tt.ms) * time.Millisecond).Sub(s.now))
			got, err := s.Throttle(t.Context(), "k", 4, 1, time.Second, tt.quantity)
			must(t, err)
			want := throttle.Decision{
				Outcome: allowed, Key: "k", Cost: tt.quantity, Capacity: 5, Remaining: tt.remaining,
				ResetAfter: time.Duration(tt.reset * float64(time.Second)), At: s.now,
			}
			switch {
			case tt.quantity > 5:
				want.Outcome = impossible
			case tt.limited:
				want.Outcome, want.RetryAfter = denied, time.Duration(tt.retry*float64(time.Second))
			}
			expect(t, fmt.Sprintf("call %d", i), got, want)
		}
	})
}

// TestThrottle_ChangedNumbers checks that permits in use become available by the numbers of the
// last call, also if that call was denied or only read the meter.
func TestThrottle_ChangedNumbers(t *testing.T) {
	for name, quantity := range map[string]int{"a denial": 1, "a look": 0, "never": 99} {
		t.Run(name, func(t *testing.T) {
			onEvery(t, func(t *testing.T, s *stage) {
				throttled := func(period time.Duration, quantity int) throttle.Decision {
					t.Helper()
					c, err := s.Throttle(t.Context(), "k", 9, 10, period, quantity)
					must(t, err)
					return c
				}
				expect(t, "takes all", throttled(time.Minute, 10).OK(), true)
				throttled(time.Hour, quantity)
				s.wait(7 * time.Second)
				expect(t, "at other numbers", throttled(time.Hour, 1).RetryAfter, 353*time.Second)
				s.wait(353 * time.Second)
				expect(t, "after that", throttled(time.Hour, 1).OK(), true)
			})
		})
	}
}
