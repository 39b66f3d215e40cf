package throttle_test

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/throttle"
)

// TestParseText checks that each setting of a limit survives its text.
func TestParseText(t *testing.T) {
	parser := throttle.New(nil, throttle.Options{}).Internals()
	second := throttle.PerSecond(3)
	for _, l := range []throttle.Limit{
		{Kind: throttle.SlidingLog, Rate: second, Margin: 50 * time.Millisecond, Apps: []string{"one", "adapt", "lease"}},
		{Kind: throttle.FixedWindow, Rate: throttle.PerDay(2000), Zone: "America/New_York", MaxBlock: 90 * time.Minute},
		{Kind: throttle.Funnel, Rate: throttle.Rate{N: 1, Per: 90 * time.Minute}, Capacity: 4},
		{Kind: throttle.TokenBucket, Rate: second, Capacity: 7, Adapt: &throttle.Adapt{}},
		{Kind: throttle.SlidingWindow, Rate: second, Adapt: &throttle.Adapt{Min: throttle.PerMinute(1), Latency: time.Second}},
		{Kind: throttle.SlidingLog, Rate: second, Apps: []string{"adapt"}, MaxBlock: time.Hour},
		{Kind: throttle.SlidingLog, Rate: second, Apps: []string{"zone"}, MaxBlock: time.Hour},
		{Kind: throttle.Concurrency, Capacity: 5, Apps: []string{"lease"}, Lease: 36 * time.Hour},
	} {
		l.Name = "l"
		must(t, l.Validate())
		got, ok := parser.ParseText("l", l.String())
		if !ok || got.String() != l.String() {
			t.Errorf("%q is read as %q, %t", l, got, ok)
		}
	}
	for _, text := range []string{"", "funnel", "funnel 1/s", "funnel 1/s capacity", "funnel 1/s capacity 1 color red", "adapt adapt", "concurrency 1/s"} {
		if l, ok := parser.ParseText("l", text); ok {
			t.Errorf("%q is read as %q", text, l)
		}
	}
}

// TestInternals_Unset checks that Unset restores what Define gave last, with the meters' states, and
// that the changelog has it.
func TestInternals_Unset(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		me := throttle.WithActor(t.Context(), "me@here")
		limiter := throttle.New(rdb, throttle.Options{})
		must(t, limiter.Set(me, log(5)))
		if err := limiter.Internals().Unset(me, "log"); !errors.Is(err, throttle.ErrNoLimit) {
			t.Errorf("a limit that no config has: %v", err)
		}
		must(t, limiter.Define(t.Context(), log(3)))
		d, err := limiter.AllowN(t.Context(), "log", "k", 2)
		must(t, err)
		expect(t, "allowed", d.Outcome, throttle.Allowed)
		must(t, limiter.Set(me, log(9)))
		must(t, limiter.SetKey(me, "log", "slow", throttle.Override{Rate: throttle.PerMinute(1)}))
		must(t, limiter.SetKey(me, "log", "slow", throttle.Override{Rate: throttle.PerMinute(2)}))
		origin, err := limiter.Internals().Origin(t.Context(), "log")
		must(t, err)
		if origin.Config == nil || origin.Config.String() != log(3).String() || !origin.Set || origin.By != "me@here" || origin.At.IsZero() {
			t.Errorf("the origin of a limit that was set is %+v", origin)
		}
		must(t, limiter.Internals().Unset(me, "log"))
		d, err = limiter.AllowN(t.Context(), "log", "k", 0)
		must(t, err)
		expect(t, "remaining", d.Remaining, 1)
		expect(t, "capacity", d.Capacity, 3)
		origin, err = limiter.Internals().Origin(t.Context(), "log")
		must(t, err)
		expect(t, "set", origin.Set, false)
		must(t, limiter.UnsetKey(me, "log", "slow"))

		changes, err := limiter.Changes(t.Context(), 4)
		must(t, err)
		for i := range changes {
			changes[i].ID, changes[i].At = "", time.Time{}
		}
		slow := func(what, from, to string) throttle.Change {
			return throttle.Change{What: what, Limit: "log", Key: "slow", By: "me@here", From: from, To: to}
		}
		expect(t, "changes", changes, []throttle.Change{
			slow("unset", "2/m", ""),
			{What: "unset", Limit: "log", By: "me@here", From: log(9).String(), To: log(3).String()},
			slow("set", "1/m", "2/m"), slow("set", "", "1/m"),
		})
	})
}

// TestLimiter_Define_NotesOverrides checks that the changelog has the overrides that a config changes.
func TestLimiter_Define_NotesOverrides(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		limiter := throttle.New(rdb, throttle.Options{})
		l := log(5)
		l.Overrides = map[string]throttle.Override{"a": {Rate: throttle.PerMinute(1)}, "b": {Rate: throttle.PerMinute(1)}}
		must(t, limiter.Define(t.Context(), l))
		l.Overrides = map[string]throttle.Override{"a": {Rate: throttle.PerMinute(4)}}
		must(t, limiter.Define(t.Context(), l))
		must(t, limiter.Define(t.Context(), l))
		changes, err := limiter.Changes(t.Context(), 2)
		must(t, err)
		for i := range changes {
			changes[i].ID, changes[i].At = "", time.Time{}
		}
		expect(t, "changes", changes, []throttle.Change{
			{What: "defined", Limit: "log", Key: "b", From: "1/m"},
			{What: "defined", Limit: "log", Key: "a", From: "1/m", To: "4/m"},
		})
	})
}
