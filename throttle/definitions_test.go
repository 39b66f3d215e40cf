package throttle_test

import (
	"errors"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/throttle"
)

func log(n int) throttle.Limit {
	return throttle.Limit{Name: "log", Kind: throttle.SlidingLog, Rate: throttle.PerHour(n)}
}

// TestDefine_AfterSet: the same words change nothing, Set stays over them, and
// new words win.
func TestDefine_AfterSet(t *testing.T) {
	onEvery(t, func(t *testing.T, s *stage) {
		capacity := func() int { return ask(t, s, "log", 0).Capacity }
		define(t, s, log(5))
		ask(t, s, "log", 2)
		define(t, s, log(5))
		expect(t, "left after the same words", ask(t, s, "log", 0).Remaining, 3)

		must(t, s.Set(t.Context(), log(7)))
		expect(t, "capacity that was set", capacity(), 7)
		define(t, s, log(5))
		expect(t, "capacity after the file's same words", capacity(), 7)
		define(t, s, log(6))
		expect(t, "capacity after the file's new words", capacity(), 6)
		must(t, s.Set(t.Context(), log(6)))
		define(t, s, log(5))
		expect(t, "capacity after a set of the file's words and then new ones", capacity(), 5)
		expect(t, "left after all this", ask(t, s, "log", 0).Remaining, 3)

		must(t, s.Set(t.Context(), throttle.Limit{Name: "own", Kind: throttle.Funnel, Rate: throttle.PerSecond(1)}))
		expect(t, "a limit that only Set made", ask(t, s, "own", 1).Outcome, allowed)
		define(t, s, throttle.Limit{Name: "own", Kind: throttle.Funnel, Rate: throttle.PerSecond(1), Capacity: 9})
		expect(t, "left when a file then defines it", ask(t, s, "own", 0).Remaining, 8)

		must(t, s.Delete(t.Context(), "log"))
		must(t, s.Set(t.Context(), log(5)))
		define(t, s, log(5))
		must(t, s.Set(t.Context(), log(7)))
		define(t, s, log(5))
		expect(t, "what was set after a file had said what was set before", capacity(), 7)
	})
}

// TestSet_LostReply: meters live on under a slower rate, also where the client had to
// repeat the call that sets it, since its answer got lost.
func TestSet_LostReply(t *testing.T) {
	onRedis(t, func(t *testing.T, s *stage) {
		l := throttle.Limit{Name: "log", Kind: throttle.SlidingLog, Rate: throttle.PerMinute(3)}
		lost := &redistest.LostReplies{}
		s.rdb.AddHook(redistest.Hook(lost.Around))
		define(t, s, l)
		ask(t, s, "log", 2)
		lost.Next = true
		must(t, s.Set(t.Context(), log(3)))
		expect(t, "lost", lost.Did, true)
		s.wait(30 * time.Minute)
		expect(t, "left", ask(t, s, "log", 0).Remaining, 1)
	})
}

func TestLimit_Apps(t *testing.T) {
	onEvery(t, func(t *testing.T, s *stage) {
		limit := throttle.Limit{Name: "l", Kind: throttle.SlidingLog, Rate: throttle.PerHour(1), Apps: []string{"foobar", "a.b", "x"}}
		define(t, s, limit)
		for app, want := range map[string]throttle.Outcome{
			"foobar": allowed, "bar": noLimit, "foo": noLimit, "foobar2": noLimit, "": noLimit, "a.b": allowed, "aXb": noLimit,
			"b,x": noLimit, "foobar,a.b": noLimit,
		} {
			l := s.as(app)
			define(t, l, limit)
			must(t, l.Reset(t.Context(), "l", "k"))
			got := ask(t, l, "l", 1)
			if got.Outcome != want {
				t.Errorf("app %q: %s, want %s", app, got, want)
			}
			if text := got.String(); want == noLimit && text != "limit l is for other apps" {
				t.Errorf("app %q: %q", app, text)
			}
		}
		limit.Apps = nil
		define(t, s, limit)
		must(t, s.Reset(t.Context(), "l", "k"))
		expect(t, "without a list", ask(t, s, "l", 1).Outcome, allowed)
	})
}

func TestLimiter_Limits(t *testing.T) {
	onEvery(t, func(t *testing.T, s *stage) {
		ctx := t.Context()
		limits := []throttle.Limit{
			{Name: "a", Kind: throttle.FixedWindow, Rate: throttle.PerDay(2000), Zone: "America/New_York", Margin: time.Second},
			{Name: "b", Kind: throttle.Funnel, Rate: throttle.Rate{N: 3, Per: 1500 * time.Millisecond}, Capacity: 10_000_000, Apps: []string{"x", "y"}},
			{Name: "c", Kind: throttle.Concurrency, Capacity: 4, Lease: 90 * time.Second, MaxBlock: time.Hour},
			{Name: "d", Kind: throttle.TokenBucket, Rate: throttle.PerSecond(9)},
			{Name: "e", Kind: throttle.SlidingWindow, Rate: throttle.Rate{N: 1_000_000, Per: throttle.Month}},
		}
		define(t, s, limits...)
		must(t, s.Pause(ctx, "e"))
		want := append([]throttle.Limit(nil), limits...)
		want[3].Capacity, want[4].Paused = 1, true
		got, err := s.Limits(ctx)
		must(t, err)
		expect(t, "limits", got, want)

		for _, l := range limits {
			must(t, s.Delete(ctx, l.Name))
			if err := s.Delete(ctx, l.Name); !errors.Is(err, throttle.ErrNoLimit) {
				t.Errorf("delete %s twice: %v", l.Name, err)
			}
		}
		got, err = s.Limits(ctx)
		must(t, err)
		expect(t, "limits after delete", got, nil)
		define(t, s, limits[4])
		expect(t, "a limit that is made again is not paused", ask(t, s, "e", 0).Outcome, allowed)
	})
}

func TestLimiter_NoLimit(t *testing.T) {
	onEvery(t, func(t *testing.T, s *stage) {
		ctx := t.Context()
		for verb, err := range map[string]error{
			"Delete": s.Delete(ctx, "l"), "Pause": s.Pause(ctx, "l"), "Resume": s.Resume(ctx, "l"),
			"Block": s.Block(ctx, "l", "k", s.now.Add(time.Hour)), "Reset": s.Reset(ctx, "l", "k"),
		} {
			if !errors.Is(err, throttle.ErrNoLimit) || errors.Is(err, throttle.ErrUnavailable) {
				t.Errorf("%s of an unknown limit: %v", verb, err)
			}
		}
		d := ask(t, s, "l", 1)
		expect(t, "asked", d, throttle.Decision{Outcome: noLimit, Limit: "l", Key: "k", Cost: 1, At: s.now})
		held, err := s.Extend(ctx, "h", throttle.Need{Limit: "l"})
		must(t, err)
		expect(t, "nothing to extend", held, 0)
		must(t, s.Free(ctx, "h", throttle.Need{Limit: "l"}))
		define(t, s, log(1))
		must(t, s.Delete(ctx, "log"))
		expect(t, "a deleted limit", ask(t, s, "log", 1).Outcome, noLimit)
	})
}

// TestDefine_Invalid: one wrong limit, or two of one name, and none is defined.
func TestDefine_Invalid(t *testing.T) {
	onEvery(t, func(t *testing.T, s *stage) {
		wrong := throttle.Limit{Name: "x", Kind: "drizzle", Rate: throttle.PerSecond(1)}
		for _, err := range []error{s.Define(t.Context(), log(1), wrong), s.Set(t.Context(), wrong), s.Define(t.Context(), log(1), log(2))} {
			if err == nil || errors.Is(err, throttle.ErrUnavailable) {
				t.Errorf("%v, want an error about the limit", err)
			}
		}
		limits, err := s.Limits(t.Context())
		must(t, err)
		expect(t, "limits", limits, nil)
	})
}

// fieldErrors is what Validate joined.
func fieldErrors(t *testing.T, err error) (found []throttle.FieldError) {
	t.Helper()
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		t.Fatalf("%v is no joined error", err)
	}
	for _, err := range joined.Unwrap() {
		field, ok := errors.AsType[*throttle.FieldError](err)
		if !ok {
			t.Fatalf("%v has no field", err)
		}
		found = append(found, *field)
	}
	return found
}

func TestValidate_Fields(t *testing.T) {
	const name, century = "want 1 to 100 letters, digits, or _ . : -", 100 * 365 * throttle.Day
	for _, tt := range []struct {
		limit throttle.Limit
		want  []throttle.FieldError
	}{
		{throttle.Limit{Name: "a b", Kind: "drizzle", Rate: throttle.PerSecond(1)}, []throttle.FieldError{
			{Field: "name", Value: `"a b"`, Want: name},
			{Field: "kind", Value: `"drizzle"`, Want: "want one of funnel, token_bucket, fixed_window, sliding_log, sliding_window, concurrency"},
		}},
		{throttle.Limit{Name: "a", Kind: throttle.Concurrency, Rate: throttle.PerSecond(1), Lease: time.Millisecond}, []throttle.FieldError{
			{Field: "capacity", Value: "0", Want: "want how many may run at once, 1 to 10000000"},
			{Field: "rate", Value: "1/s", Want: "a concurrency limit has no rate, only a capacity"},
			{Field: "lease", Value: "1ms", Want: "want at least 1s"},
		}},
		{throttle.Limit{Name: "a", Kind: throttle.Concurrency, Capacity: 1, Lease: century + 1}, []throttle.FieldError{
			{Field: "lease", Value: "36500d1ns", Want: "want at most a hundred years"},
		}},
		{throttle.Limit{Name: "a", Kind: throttle.Funnel, Capacity: -1, Apps: []string{"ok", "x,y"}}, []throttle.FieldError{
			{Field: "capacity", Value: "-1", Want: "want 1 to 10000000"},
			{Field: "rate", Value: "none", Want: "want 1 to 10000000 permits per period"},
			{Field: "apps", Value: `"x,y"`, Want: name},
		}},
		{throttle.Limit{Name: "a", Kind: throttle.SlidingLog, Rate: throttle.PerDay(100_001), Zone: "Mars/Olympus", Margin: -1}, []throttle.FieldError{
			{Field: "rate", Value: "100001/day", Want: "a sliding_log keeps every time, at most 100000; use sliding_window"},
			{Field: "margin", Value: "-1ns", Want: "want whole microseconds, from 0 to less than the period 24h"},
			{Field: "zone", Value: `"Mars/Olympus"`, Want: "only a fixed_window limit follows a calendar"},
			{Field: "zone", Value: `"Mars/Olympus"`, Want: "want an IANA time zone such as UTC or America/New_York"},
		}},
		{throttle.Limit{Name: "a", Kind: throttle.Concurrency, Capacity: 1, Lease: 7 * throttle.Day, Adapt: &throttle.Adapt{}}, []throttle.FieldError{
			{Field: "adapt", Value: `"adapt"`, Want: "a concurrency limit cannot adapt; want funnel, token_bucket, sliding_log or sliding_window"},
		}},
		{throttle.Limit{Name: "a", Kind: throttle.Funnel, Rate: throttle.PerSecond(1), Adapt: &throttle.Adapt{Min: throttle.PerSecond(2), Latency: -time.Second}}, []throttle.FieldError{
			{Field: "adapt.latency", Value: "-1s", Want: "want how long a call may take, in whole microseconds"},
			{Field: "adapt.min", Value: "2/s", Want: "want a rate, at most the limit's own 1/s"},
		}},
	} {
		err := tt.limit.Validate()
		expect(t, tt.limit.String(), fieldErrors(t, err), tt.want)
	}
	err := throttle.Limit{Name: "a", Kind: throttle.Concurrency, Capacity: -3}.Validate()
	expect(t, "in words", err.Error(), "capacity -3: want how many may run at once, 1 to 10000000")
}

// TestSet_ShorterWindow_ClockSetBack: a count of an earlier window counts again if the limit changes
// to a shorter window, and the clock then steps back to before the present one.
func TestSet_ShorterWindow_ClockSetBack(t *testing.T) {
	onEvery(t, func(t *testing.T, s *stage) {
		window := throttle.Limit{Name: "window", Kind: throttle.FixedWindow, Rate: throttle.PerHour(2)}
		define(t, s, window)
		ask(t, s, "window", 1)
		s.wait(10 * time.Second)
		window.Rate = throttle.PerSecond(2)
		must(t, s.Set(t.Context(), window))
		expect(t, "left in the present second", ask(t, s, "window", 0).Remaining, 2)
		s.wait(-10 * time.Second)
		expect(t, "left in the second of the call", ask(t, s, "window", 0).Remaining, 1)
	})
}
