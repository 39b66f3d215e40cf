package throttle_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate/throttle"
)

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
