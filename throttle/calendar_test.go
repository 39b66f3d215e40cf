package throttle_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate/throttle"
)

func TestLimit_Margin(t *testing.T) {
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
