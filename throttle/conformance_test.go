package throttle_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/headgate/headgate/throttle"
)

// define makes limits known, or ends the test.
func define(t *testing.T, l throttle.Limiter, limits ...throttle.Limit) {
	t.Helper()
	must(t, l.Define(t.Context(), limits...))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// ask takes n permits of a limit for the key "k".
func ask(t *testing.T, l throttle.Limiter, limit string, n int) throttle.Decision {
	t.Helper()
	d, err := l.AllowN(t.Context(), limit, "k", n)
	must(t, err)
	return d
}

// outcomes asks for one permit at a time.
func outcomes(t *testing.T, l throttle.Limiter, limit string, calls int) (got []throttle.Outcome) {
	t.Helper()
	for range calls {
		got = append(got, ask(t, l, limit, 1).Outcome)
	}
	return got
}

// expect compares two values and shows how they differ.
func expect[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

const (
	allowed = throttle.Allowed
	denied  = throttle.Denied
	never   = throttle.Never
	noLimit = throttle.NoLimit
)

// threes is one limit of each kind that lets three through at once.
var threes = []throttle.Limit{
	{Name: "funnel", Kind: throttle.Funnel, Rate: throttle.PerSecond(3), Capacity: 3},
	{Name: "bucket", Kind: throttle.TokenBucket, Rate: throttle.PerSecond(3), Capacity: 3},
	{Name: "fixed", Kind: throttle.FixedWindow, Rate: throttle.PerMinute(3)},
	{Name: "log", Kind: throttle.SlidingLog, Rate: throttle.PerMinute(3)},
	{Name: "window", Kind: throttle.SlidingWindow, Rate: throttle.PerMinute(3)},
	{Name: "running", Kind: throttle.Concurrency, Capacity: 3},
}

func TestEveryKind(t *testing.T) {
	const µs = time.Microsecond
	// After 1 permit: reset. After 3: reset, and how long until one, and two.
	want := map[string]struct{ reset1, reset3, retry1, retry2 time.Duration }{
		"funnel":  {333_334 * µs, time.Second, 333_334 * µs, 666_667 * µs},
		"bucket":  {333_334 * µs, time.Second, 333_334 * µs, 666_667 * µs},
		"fixed":   {59_876_544 * µs, 59_876_544 * µs, 59_876_544 * µs, 59_876_544 * µs},
		"log":     {time.Minute, time.Minute, time.Minute, time.Minute},
		"window":  {60_876_543 * µs, 60_876_543 * µs, 60_876_543 * µs, 60_876_543 * µs},
		"running": {30 * time.Second, 30 * time.Second, 30 * time.Second, 30 * time.Second},
	}
	onEvery(t, func(t *testing.T, s *stage) {
		define(t, s, threes...)
		for _, limit := range threes {
			s.wait(noon.Sub(s.now))
			name, want := limit.Name, want[limit.Name]
			decision := func(o throttle.Outcome, cost, left int, retry, reset time.Duration) throttle.Decision {
				return throttle.Decision{
					Outcome: o, Limit: name, Key: "k", Cost: cost, Capacity: 3, Remaining: left,
					RetryAfter: retry, ResetAfter: reset, At: s.now,
				}
			}
			asked := func(what string, cost int, want throttle.Decision) {
				t.Helper()
				got := ask(t, s, name, cost)
				if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(throttle.Decision{}, "Holder", "Lease", "Taken")); diff != "" {
					t.Errorf("%s: %s (-want +got):\n%s", name, what, diff)
				}
				if leased := limit.Kind == throttle.Concurrency && got.OK() && cost > 0; leased != (got.Holder != "" && got.Lease == 30*time.Second) {
					t.Errorf("%s: %s: holder %q, lease %s", name, what, got.Holder, got.Lease)
				}
			}
			asked("unused", 0, decision(allowed, 0, 3, 0, 0))
			asked("above the capacity", 4, decision(never, 4, 3, 0, 0))
			asked("first", 1, decision(allowed, 1, 2, 0, want.reset1))
			asked("too many", 3, decision(denied, 3, 2, want.reset1, want.reset1))
			asked("the rest", 2, decision(allowed, 2, 0, 0, want.reset3))
			asked("one more", 1, decision(denied, 1, 0, want.retry1, want.reset3))
			asked("two more", 2, decision(denied, 2, 0, want.retry2, want.reset3))
			asked("only looking", 0, decision(allowed, 0, 0, 0, want.reset3))
			s.wait(want.retry2 - µs)
			if got := ask(t, s, name, 2); got.Outcome != denied || got.RetryAfter != µs {
				t.Errorf("%s: a microsecond early: %s", name, got)
			}
			s.wait(µs)
			if got := ask(t, s, name, 2); !got.OK() {
				t.Errorf("%s: after retry-after: %s", name, got)
			}
			s.wait(2 * time.Minute)
			asked("long after", 0, decision(allowed, 0, 3, 0, 0))
		}
	})
}

// TestKeysAreApart: a meter is one limit and one key, whatever they are made of.
func TestKeysAreApart(t *testing.T) {
	onEvery(t, func(t *testing.T, s *stage) {
		define(t, s, throttle.Limit{Name: "a", Kind: throttle.SlidingLog, Rate: throttle.PerHour(1)},
			throttle.Limit{Name: "a:b", Kind: throttle.SlidingLog, Rate: throttle.PerHour(1)})
		for _, key := range []string{"", "x", "|", "x|", "b|x", ":", "{", "}", "%s", "5e15", "ключ", "\xff", " ", `\`, strings.Repeat("k", 200)} {
			for _, limit := range []string{"a", "a:b"} {
				for _, want := range []throttle.Outcome{allowed, denied} {
					d, err := s.Allow(t.Context(), limit, key)
					must(t, err)
					if d.Outcome != want || d.Key != key {
						t.Errorf("limit %q, key %q: %v, want %s", limit, key, d, want)
					}
				}
			}
		}
	})
}

func TestRefusedCalls(t *testing.T) {
	onEvery(t, func(t *testing.T, s *stage) {
		define(t, s, threes...)
		for _, need := range []throttle.Need{
			{Limit: "", Cost: 1},
			{Limit: "no spaces", Cost: 1},
			{Limit: "no|bars", Cost: 1},
			{Limit: strings.Repeat("n", 101), Cost: 1},
			{Limit: "log", Key: "line\nbreak", Cost: 1},
			{Limit: "log", Key: "nul\x00", Cost: 1},
			{Limit: "log", Key: strings.Repeat("k", 201), Cost: 1},
			{Limit: "log", Cost: -1},
			{Limit: "log", Cost: math.MaxInt32 + 1},
		} {
			d, err := s.AllowN(t.Context(), need.Limit, need.Key, need.Cost)
			if err == nil || errors.Is(err, throttle.ErrUnavailable) || d.OK() {
				t.Errorf("AllowN %+v: %v, %v; want an error of the caller's", need, d, err)
			}
			d, err = s.AllowAll(t.Context(), throttle.Need{Limit: "log"}, need)
			if err == nil || d.OK() {
				t.Errorf("AllowAll with %+v: %v, %v; want an error", need, d, err)
			}
		}
		if _, err := s.AllowAll(t.Context()); err == nil {
			t.Error("AllowAll of nothing: want an error")
		}
		expect(t, "a refused call takes nothing", ask(t, s, "log", 0).Remaining, 3)
		for _, cost := range []int{math.MaxInt32, math.MaxInt32 - 1, 4} {
			expect(t, "a cost above the capacity", ask(t, s, "log", cost).Outcome, never)
		}
	})
}

func TestAllowAll(t *testing.T) {
	onEvery(t, func(t *testing.T, s *stage) {
		define(t, s,
			throttle.Limit{Name: "host", Kind: throttle.SlidingLog, Rate: throttle.PerMinute(2)},
			throttle.Limit{Name: "all", Kind: throttle.SlidingLog, Rate: throttle.PerSecond(3)})
		host := func(key string) throttle.Need { return throttle.Need{Limit: "host", Key: key} }
		all := throttle.Need{Limit: "all"}
		left := func(n throttle.Need) int {
			t.Helper()
			d, err := s.Peek(t.Context(), n.Limit, n.Key)
			must(t, err)
			return d.Remaining
		}
		call := func(needs ...throttle.Need) throttle.Decision {
			t.Helper()
			d, err := s.AllowAll(t.Context(), needs...)
			must(t, err)
			return d
		}

		d := call(all, host("a"))
		expect(t, "all allow: the one with least left answers", [3]any{d.Outcome, d.Limit, d.Remaining}, [3]any{allowed, "host", 1})
		call(all, host("a"))
		d = call(all, host("a"))
		expect(t, "the limit that denies", [3]any{d.Limit, d.Key, d.RetryAfter}, [3]any{"host", "a", time.Minute})
		expect(t, "left of the other after a denial", left(all), 1)
		call(all, host("b"))
		d = call(host("a"), all)
		expect(t, "the one to wait longest for, in any order", [3]any{d.Outcome, d.Limit, d.RetryAfter}, [3]any{denied, "host", time.Minute})
		d = call(host("b"), all)
		expect(t, "the one that denies alone", [3]any{d.Outcome, d.Limit, d.RetryAfter}, [3]any{denied, "all", time.Second})
		expect(t, "left of b", left(host("b")), 1)

		d = call(host("c"), host("c"))
		expect(t, "one meter named twice takes twice", [3]any{d.Outcome, d.Remaining, d.Cost}, [3]any{allowed, 0, 2})
		d = call(host("d"), throttle.Need{Limit: "host", Key: "d", Cost: 2})
		expect(t, "one meter named twice, above its capacity", [2]any{d.Outcome, d.Cost}, [2]any{never, 3})
		d = call(throttle.Need{Limit: "host", Key: "d", Cost: 3}, throttle.Need{Limit: "nothing"})
		expect(t, "one can never, one is unknown", d.OK(), false)
		d = call(host("d"), throttle.Need{Limit: "nothing"})
		expect(t, "one unknown", [2]any{d.Outcome, d.Limit}, [2]any{noLimit, "nothing"})
		expect(t, "left of d", left(host("d")), 2)
	})
}

func TestPeekChangesNothing(t *testing.T) {
	onEvery(t, func(t *testing.T, s *stage) {
		define(t, s, threes...)
		for _, limit := range threes {
			ask(t, s, limit.Name, 1)
			before := snapshot(t, s)
			for range 5 {
				d, err := s.Peek(t.Context(), limit.Name, "k")
				must(t, err)
				expect(t, limit.Name+" left", d.Remaining, 2)
				expect(t, limit.Name+" denied", ask(t, s, limit.Name, 3).Outcome, denied)
			}
			expect(t, limit.Name+" keys in Redis", snapshot(t, s), before)
		}
	})
}

// snapshot is all keys with what they hold. In process there is nothing to see.
func snapshot(t *testing.T, s *stage) map[string]any {
	t.Helper()
	if s.rdb == nil {
		return nil
	}
	ctx := t.Context()
	keys, err := s.rdb.Keys(ctx, "hg:*").Result()
	must(t, err)
	all := map[string]any{}
	for _, key := range keys {
		kind, err := s.rdb.Type(ctx, key).Result()
		must(t, err)
		switch kind {
		case "string":
			all[key] = s.rdb.Get(ctx, key).Val()
		case "list":
			all[key] = s.rdb.LRange(ctx, key, 0, -1).Val()
		case "hash":
			all[key] = s.rdb.HGetAll(ctx, key).Val()
		case "set":
			all[key] = s.rdb.SMembers(ctx, key).Val()
		case "zset":
			all[key] = s.rdb.ZRangeWithScores(ctx, key, 0, -1).Val()
		case "stream":
			all[key] = s.rdb.XRange(ctx, key, "-", "+").Val()
		default:
			t.Fatalf("%s is a %s", key, kind)
		}
	}
	return all
}

func TestPauseAndResume(t *testing.T) {
	onEvery(t, func(t *testing.T, s *stage) {
		ctx := t.Context()
		for _, limit := range threes {
			define(t, s, limit)
			must(t, s.Pause(ctx, limit.Name))
			d := ask(t, s, limit.Name, 1)
			expect(t, limit.Name+" paused", [3]any{d.Outcome, d.Remaining, d.RetryAfter}, [3]any{denied, 0, time.Minute})
			changed := limit
			changed.Margin = time.Millisecond
			if limit.Kind == throttle.Concurrency {
				changed.Margin, changed.Capacity = 0, 2
			}
			define(t, s, changed)
			must(t, s.Set(ctx, limit))
			expect(t, limit.Name+" paused after redefinition", ask(t, s, limit.Name, 1).Outcome, denied)
			must(t, s.Resume(ctx, limit.Name))
			must(t, s.Resume(ctx, limit.Name))
			expect(t, limit.Name+" resumed", ask(t, s, limit.Name, 1).Outcome, allowed)
		}
	})
}

func TestBlock(t *testing.T) {
	onEvery(t, func(t *testing.T, s *stage) {
		ctx := t.Context()
		define(t, s, threes...)
		for _, limit := range threes {
			must(t, s.Block(ctx, limit.Name, "k", s.now.Add(5*time.Second)))
			d := ask(t, s, limit.Name, 1)
			expect(t, limit.Name+" blocked", [3]any{d.Outcome, d.Remaining, d.RetryAfter}, [3]any{denied, 0, 5 * time.Second})
			expect(t, limit.Name+" above the capacity while blocked", ask(t, s, limit.Name, 4).Remaining, 0)
			other, err := s.Allow(ctx, limit.Name, "other")
			must(t, err)
			expect(t, limit.Name+" other key", other.Outcome, allowed)

			must(t, s.Block(ctx, limit.Name, "k", s.now.Add(-time.Second)))
			expect(t, limit.Name+" unblocked", ask(t, s, limit.Name, 1).Outcome, allowed)

			must(t, s.Block(ctx, limit.Name, "k", s.now.Add(5*time.Second)))
			s.wait(5*time.Second - time.Microsecond)
			expect(t, limit.Name+" a microsecond early", ask(t, s, limit.Name, 1).RetryAfter, time.Microsecond)
			s.wait(time.Microsecond)
			expect(t, limit.Name+" at the end of the block", ask(t, s, limit.Name, 1).Outcome, allowed)
		}
	})
}

func TestReset(t *testing.T) {
	onEvery(t, func(t *testing.T, s *stage) {
		ctx := t.Context()
		define(t, s, threes...)
		for _, limit := range threes {
			ask(t, s, limit.Name, 3)
			must(t, s.Block(ctx, limit.Name, "k", s.now.Add(time.Hour)))
			must(t, s.Reset(ctx, limit.Name, "k"))
			d := ask(t, s, limit.Name, 0)
			expect(t, limit.Name+" after reset", [3]any{d.Outcome, d.Remaining, d.ResetAfter}, [3]any{allowed, 3, time.Duration(0)})
		}
	})
}

func TestLeases(t *testing.T) {
	onEvery(t, func(t *testing.T, s *stage) {
		ctx := t.Context()
		define(t, s,
			throttle.Limit{Name: "short", Kind: throttle.Concurrency, Capacity: 2, Lease: 10 * time.Second},
			throttle.Limit{Name: "long", Kind: throttle.Concurrency, Capacity: 3},
			throttle.Limit{Name: "log", Kind: throttle.SlidingLog, Rate: throttle.PerHour(9)})
		needs := []throttle.Need{{Limit: "long", Key: "k", Cost: 2}, {Limit: "log", Key: "k"}, {Limit: "short", Key: "k"}}
		extend := func(holder string) bool {
			t.Helper()
			held, err := s.Extend(ctx, holder, needs...)
			must(t, err)
			return held
		}
		free := func() [2]int { return [2]int{ask(t, s, "long", 0).Remaining, ask(t, s, "short", 0).Remaining} }

		d, err := s.AllowAll(ctx, needs...)
		must(t, err)
		expect(t, "the shortest lease", d.Lease, 10*time.Second)
		expect(t, "free", free(), [2]int{1, 1})
		s.wait(10*time.Second - time.Microsecond)
		expect(t, "extended", extend(d.Holder), true)
		expect(t, "a stranger's", extend("nobody"), false)
		s.wait(10*time.Second - time.Microsecond)
		expect(t, "free before the end of the extension", free(), [2]int{1, 1})
		s.wait(time.Microsecond)
		expect(t, "free at its end", free(), [2]int{1, 2})
		expect(t, "one of two is lost", extend(d.Holder), false)
		expect(t, "a lost lease stays lost", free(), [2]int{1, 2})
		s.wait(30*time.Second - time.Microsecond)
		expect(t, "the other was extended all the same", free(), [2]int{1, 2})
		must(t, s.Free(ctx, "nobody", needs...))
		expect(t, "after a stranger's free", free(), [2]int{1, 2})
		must(t, s.Free(ctx, d.Holder, needs...))
		must(t, s.Free(ctx, d.Holder, needs...))
		expect(t, "freed", free(), [2]int{3, 2})
	})
}

// TestLeaseShortened: a lease that was given for long stays, and others with
// the new, shorter one do not take its permit along when they end.
func TestLeaseShortened(t *testing.T) {
	onEvery(t, func(t *testing.T, s *stage) {
		limit := throttle.Limit{Name: "l", Kind: throttle.Concurrency, Capacity: 2, Lease: time.Minute}
		define(t, s, limit)
		ask(t, s, "l", 1)
		limit.Lease = time.Second
		define(t, s, limit)
		ask(t, s, "l", 1)
		s.wait(3 * time.Second)
		expect(t, "free", ask(t, s, "l", 0).Remaining, 1)
		s.wait(56 * time.Second)
		expect(t, "free before the long lease ends", ask(t, s, "l", 0).Remaining, 1)
		s.wait(time.Second)
		expect(t, "free after it", ask(t, s, "l", 0).Remaining, 2)
	})
}

func TestMargin(t *testing.T) {
	onEvery(t, func(t *testing.T, s *stage) {
		for name, kind := range map[string]throttle.Kind{"log": throttle.SlidingLog, "funnel": throttle.Funnel} {
			define(t, s, throttle.Limit{Name: name, Kind: kind, Rate: throttle.PerSecond(1), Margin: 100 * time.Millisecond})
			expect(t, name, outcomes(t, s, name, 2), []throttle.Outcome{allowed, denied})
			expect(t, name+" retry", ask(t, s, name, 1).RetryAfter, 1100*time.Millisecond)
		}
		define(t, s, throttle.Limit{Name: "fixed", Kind: throttle.FixedWindow, Rate: throttle.PerSecond(1), Margin: 200 * time.Millisecond})
		d := ask(t, s, "fixed", 1) // 123 ms into its window
		expect(t, "not open yet", [3]any{d.Outcome, d.RetryAfter, d.Remaining}, [3]any{denied, 76544 * time.Microsecond, 0})
		s.wait(d.RetryAfter)
		expect(t, "open", ask(t, s, "fixed", 1).Outcome, allowed)
		expect(t, "the next one opens late, too", ask(t, s, "fixed", 1).RetryAfter, time.Second)
	})
}

// TestCalendars: 2 per calendar period, across the boundaries of a zone with a
// clock change, and long after what Redis was told first.
func TestCalendars(t *testing.T) {
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
				expect(t, "the window", outcomes(t, s, "c", 3), []throttle.Outcome{allowed, allowed, denied})
				d := ask(t, s, "c", 1)
				expect(t, "retry", d.RetryAfter, next.Sub(now))
				expect(t, "reset", d.ResetAfter, next.Sub(now))
				s.wait(d.RetryAfter - time.Microsecond)
				expect(t, "before the boundary", outcomes(t, s, "c", 1), []throttle.Outcome{denied})
				s.wait(time.Microsecond)
				expect(t, "after it", outcomes(t, s, "c", 3), []throttle.Outcome{allowed, allowed, denied})
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
			want := throttle.Cell{
				Limited: tt.limited, Limit: 5, Remaining: tt.remaining, RetryAfter: -1,
				ResetAfter: time.Duration(tt.reset * float64(time.Second)), Never: tt.quantity > 5,
			}
			if tt.retry >= 0 {
				want.RetryAfter = time.Duration(tt.retry * float64(time.Second))
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("call %d (-want +got):\n%s", i, diff)
			}
		}
		for _, tt := range []struct {
			burst, count int
			period       time.Duration
			quantity     int
		}{{-1, 1, time.Second, 1}, {1, 0, time.Second, 1}, {1, 1, 0, 1}, {1, 1, time.Second, -1}, {1, 1, time.Nanosecond, 1}} {
			if _, err := s.Throttle(t.Context(), "k", tt.burst, tt.count, tt.period, tt.quantity); err == nil {
				t.Errorf("Throttle %+v: want an error", tt)
			}
		}
	})
}
