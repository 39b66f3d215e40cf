package meter

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestFixedWindow(t *testing.T) {
	m := New(&Limit{Kind: FixedWindow, N: 3, Per: 100 * time.Microsecond, Margin: 5 * time.Microsecond})
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
			m.ReadyAt(tt.now, 1), m.ReadyAt(tt.now, 3), m.ReadyAt(tt.now, 4), m.ReadyAt(tt.now, 7),
			m.Left(tt.now), m.FullAt(tt.now),
		}
		if want := [6]int64{tt.ready1, tt.ready3, tt.ready4, tt.ready7, tt.left, tt.full}; got != want {
			t.Errorf("at %d: ready for 1, 3, 4, 7, left, full = %v, want %v", tt.now, got, want)
		}
		if tt.take > 0 {
			m.Take(tt.now, tt.take)
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
			into := at % l.PeriodUS()
			if into < us(l.Margin) || into >= l.PeriodUS()-us(l.Margin) {
				t.Fatalf("a permit %d µs into a window that opens after and closes before %s", into, l.Margin)
			}
			window := at - into
			if counts[window]++; counts[window] > l.N {
				t.Fatalf("more than %d in the window at %d", l.N, window)
			}
		}
	})
}

func TestFixedWindowWhenTheLimitChanges(t *testing.T) {
	m := New(&Limit{Kind: FixedWindow, N: 10, Per: time.Hour})
	now := epoch + us(30*time.Minute) // 12:30
	m.Take(now, 8)
	for _, tt := range []struct {
		n      int
		per    time.Duration
		left   int64
		ready1 time.Duration
	}{
		{10, time.Hour, 2, 0},
		{5, time.Hour, 0, 30 * time.Minute},
		{20, day, 12, 0},        // the day holds the hour
		{10, time.Minute, 2, 0}, // all of it may be of this minute
		{5, time.Minute, 0, time.Minute},
	} {
		m.Define(&Limit{Kind: FixedWindow, N: tt.n, Per: tt.per})
		if left, ready := m.Left(now), m.ReadyAt(now, 1)-now; left != tt.left || ready != us(tt.ready1) {
			t.Errorf("%d per %s: %d left, ready in %d µs; want %d, %s", tt.n, tt.per, left, ready, tt.left, tt.ready1)
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
