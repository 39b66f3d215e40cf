package throttle_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/headgate/headgate/internal/testutil/limittest"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/throttle"
)

// limiter is a *throttle.Limiter or a *stage.
type limiter interface {
	Define(ctx context.Context, limits ...throttle.Limit) error
	AllowN(ctx context.Context, limit, key string, n int) (throttle.Decision, error)
}

// define makes limits known, or ends the test.
func define(t *testing.T, l limiter, limits ...throttle.Limit) {
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
func ask(t *testing.T, l limiter, limit string, n int) throttle.Decision {
	t.Helper()
	d, err := l.AllowN(t.Context(), limit, "k", n)
	must(t, err)
	return d
}

// count asks for one permit at a time, and returns the number of allowed calls.
func count(t *testing.T, l limiter, limit string, calls int) (passed int) {
	t.Helper()
	for range calls {
		if ask(t, l, limit, 1).OK() {
			passed++
		}
	}
	return passed
}

// expect compares two values and shows how they differ.
func expect[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.IgnoreUnexported(throttle.Decision{}, throttle.KeyState{})); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

const (
	allowed    = throttle.Allowed
	denied     = throttle.Denied
	impossible = throttle.Impossible
	noLimit    = throttle.NoLimit
)

var threes = limittest.Threes

func TestAllow_EveryKind(t *testing.T) {
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
				if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(throttle.Decision{}, "Holder", "Lease", "Taken"), cmpopts.IgnoreUnexported(throttle.Decision{}, throttle.KeyState{})); diff != "" {
					t.Errorf("%s: %s (-want +got):\n%s", name, what, diff)
				}
				if leased := limit.Kind == throttle.Concurrency && got.OK() && cost > 0; leased != (got.Holder != "" && got.Lease == 30*time.Second) {
					t.Errorf("%s: %s: holder %q, lease %s", name, what, got.Holder, got.Lease)
				}
			}
			asked("unused", 0, decision(allowed, 0, 3, 0, 0))
			asked("above the capacity", 4, decision(impossible, 4, 3, 0, 0))
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

// TestAllow_Keys: a meter is one limit and one key, whatever they are made of.
func TestAllow_Keys(t *testing.T) {
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

func TestAllow_Invalid(t *testing.T) {
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
			if need.Cost == 1 {
				callerError(t, "Block", s.Block(t.Context(), need.Limit, need.Key, s.now.Add(time.Hour)))
				callerError(t, "Reset", s.Reset(t.Context(), need.Limit, need.Key))
			}
		}
		if _, err := s.AllowAll(t.Context()); err == nil {
			t.Error("AllowAll of nothing: want an error")
		}
		expect(t, "a refused call takes nothing", ask(t, s, "log", 0).Remaining, 3)
		for _, cost := range []int{math.MaxInt32, math.MaxInt32 - 1, 4} {
			expect(t, "a cost above the capacity", ask(t, s, "log", cost).Outcome, impossible)
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
			d, err := s.AllowN(t.Context(), n.Limit, n.Key, 0)
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
		expect(t, "one meter named twice, above its capacity", [2]any{d.Outcome, d.Cost}, [2]any{impossible, 3})
		d = call(throttle.Need{Limit: "host", Key: "d", Cost: 3}, throttle.Need{Limit: "nothing"})
		expect(t, "one can never, one is unknown", d.OK(), false)
		d = call(host("d"), throttle.Need{Limit: "nothing"})
		expect(t, "one unknown", [2]any{d.Outcome, d.Limit}, [2]any{noLimit, "nothing"})
		expect(t, "left of d", left(host("d")), 2)

		define(t, s,
			throttle.Limit{Name: "middle", Kind: throttle.FixedWindow, Rate: throttle.PerSecond(1), Margin: 499 * time.Millisecond},
			throttle.Limit{Name: "halves", Kind: throttle.FixedWindow, Rate: throttle.Rate{N: 1, Per: 500 * time.Millisecond}, Margin: 2 * time.Millisecond})
		expect(t, "two that are never open together are asked 100 times", call(throttle.Need{Limit: "middle"}, throttle.Need{Limit: "halves"}).RetryAfter.Truncate(time.Second), 49*time.Second)
	})
}

func TestAllow_CostZero(t *testing.T) {
	onEvery(t, func(t *testing.T, s *stage) {
		define(t, s, threes...)
		for _, limit := range threes {
			ask(t, s, limit.Name, 1)
			before := snapshot(t, s)
			for range 5 {
				d, err := s.AllowN(t.Context(), limit.Name, "k", 0)
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
	return redistest.Contents(t, s.rdb)
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
			return held > 0
		}
		free := func() [2]int { return [2]int{ask(t, s, "long", 0).Remaining, ask(t, s, "short", 0).Remaining} }

		d, err := s.AllowAll(ctx, needs...)
		must(t, err)
		expect(t, "the shortest lease", d.Lease, 10*time.Second)
		expect(t, "free", free(), [2]int{1, 1})
		s.wait(10*time.Second - time.Microsecond)
		expect(t, "extended", extend(d.Holder), true)
		expect(t, "another holder's", extend("another"), false)
		s.wait(10*time.Second - time.Microsecond)
		expect(t, "free before the end of the extension", free(), [2]int{1, 1})
		s.wait(time.Microsecond)
		expect(t, "free at its end", free(), [2]int{1, 2})
		expect(t, "one of two is lost", extend(d.Holder), false)
		expect(t, "a lost lease stays lost", free(), [2]int{1, 2})
		s.wait(30*time.Second - time.Microsecond)
		expect(t, "the other lease was extended nevertheless", free(), [2]int{1, 2})
		must(t, s.Free(ctx, "another", needs...))
		expect(t, "after another holder's free", free(), [2]int{1, 2})
		must(t, s.Free(ctx, d.Holder, needs...))
		must(t, s.Free(ctx, d.Holder, needs...))
		expect(t, "freed", free(), [2]int{3, 2})
	})
}
