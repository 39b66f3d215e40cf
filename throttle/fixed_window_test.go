package throttle

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestFixedWindow(t *testing.T) {
	m := newMeter(&activeLimit{Limit: Limit{
		Kind: FixedWindow, Rate: Rate{3, 100 * time.Microsecond}, Margin: 5 * time.Microsecond,
	}})
	for _, tt := range []struct{ now, take, ready1, ready3, ready4, ready7, left, full int64 }{
		{1003, 0, 1005, 1005, 1105, 1205, 0, 1003}, // not open yet
		{1005, 2, 1005, 1005, 1105, 1205, 3, 1005},
		{1094, 0, 1094, 1105, 1105, 1205, 1, 1100},
		{1095, 0, 1105, 1105, 1205, 1305, 0, 1100}, // closed, with one left
		{1099, 0, 1105, 1105, 1205, 1305, 0, 1100},
		{1100, 0, 1105, 1105, 1205, 1305, 0, 1100},
		{1120, 1, 1120, 1120, 1205, 1305, 3, 1120},
		{1050, 0, 1105, 1205, 1205, 1305, 0, 1200}, // the clock was set back
		{1110, 0, 1110, 1205, 1205, 1305, 2, 1200},
	} {
		got := [6]int64{
			m.readyAt(tt.now, 1), m.readyAt(tt.now, 3), m.readyAt(tt.now, 4), m.readyAt(tt.now, 7),
			m.left(tt.now), m.fullAt(tt.now),
		}
		if want := [6]int64{tt.ready1, tt.ready3, tt.ready4, tt.ready7, tt.left, tt.full}; got != want {
			t.Errorf("at %d: ready for 1, 3, 4, 7, left, full = %v, want %v", tt.now, got, want)
		}
		if tt.take > 0 {
			m.take(tt.now, tt.take)
		}
	}
}

// TestFixedWindowGuarantee: never more than n in one aligned window, also when
// the clock is set back, and none before a window opens.
func TestFixedWindowGuarantee(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := anyLimit(t, FixedWindow)
		counts := map[int64]int{}
		for _, at := range history(t, l, true) {
			into := at % l.periodUS()
			if into < us(l.Margin) || into >= l.periodUS()-us(l.Margin) {
				t.Fatalf("a permit %d µs into a window that opens after and closes before %s", into, l.Margin)
			}
			window := at - into
			if counts[window]++; counts[window] > l.Rate.N {
				t.Fatalf("more than %d in the window at %d", l.Rate.N, window)
			}
		}
	})
}

func TestFixedWindowWhenTheLimitChanges(t *testing.T) {
	m := newMeter(&activeLimit{Limit: Limit{Kind: FixedWindow, Rate: PerHour(10)}})
	now := epoch + us(30*time.Minute) // 12:30
	m.take(now, 8)
	for _, tt := range []struct {
		rate   Rate
		left   int64
		ready1 time.Duration
	}{
		{PerHour(10), 2, 0},
		{PerHour(5), 0, 30 * time.Minute},
		{PerDay(20), 12, 0},   // the day holds the hour
		{PerMinute(10), 2, 0}, // all of it may be of this minute
		{PerMinute(5), 0, time.Minute},
	} {
		m.define(&activeLimit{Limit: Limit{Kind: FixedWindow, Rate: tt.rate}})
		if left, ready := m.left(now), m.readyAt(now, 1)-now; left != tt.left || ready != us(tt.ready1) {
			t.Errorf("%s: %d left, ready in %d µs; want %d, %s", tt.rate, left, ready, tt.left, tt.ready1)
		}
	}
}

// TestFixedWindowFollowsTheCalendar: 2 a day by New York's calendar, over the
// day of 25 hours in November.
func TestFixedWindowFollowsTheCalendar(t *testing.T) {
	m := newMeter(&activeLimit{Limit: Limit{Kind: FixedWindow, Rate: PerDay(2), Zone: "America/New_York"}})
	at := func(text string) int64 { return instant(t, text) }
	for _, tt := range []struct{ now, ready1, ready3, ready5 string }{
		{"2026-11-01T00:30:00-04:00", "2026-11-01T00:30:00-04:00", "2026-11-02T00:00:00-05:00", "2026-11-03T00:00:00-05:00"},
		{"2026-11-01T23:59:59-05:00", "2026-11-01T23:59:59-05:00", "2026-11-02T00:00:00-05:00", "2026-11-03T00:00:00-05:00"},
		{"2026-11-01T23:59:59-05:00", "2026-11-02T00:00:00-05:00", "2026-11-03T00:00:00-05:00", "2026-11-04T00:00:00-05:00"},
	} {
		for k, want := range map[int64]string{1: tt.ready1, 3: tt.ready3, 5: tt.ready5} {
			if got := m.readyAt(at(tt.now), k); got != at(want) {
				t.Errorf("at %s: ready for %d at %s, want %s", tt.now, k, time.UnixMicro(got).UTC(), want)
			}
		}
		if m.readyAt(at(tt.now), 1) <= at(tt.now) {
			m.take(at(tt.now), 1)
		}
	}
}

func instant(t rapid.TB, text string) int64 {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return at.UnixMicro()
}
