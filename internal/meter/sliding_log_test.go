package meter

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func newLog(n int, per time.Duration) *slidingLog {
	return New(&Limit{Kind: SlidingLog, N: n, Per: per}).(*slidingLog)
}

func TestSlidingLog(t *testing.T) {
	m := newLog(3, 100*time.Microsecond)
	for _, tt := range []struct{ now, take, ready1, ready3, ready4, ready7, left, full int64 }{
		{1000, 1, 1000, 1000, 1100, 1200, 3, 1000},
		{1010, 1, 1010, 1100, 1110, 1210, 2, 1100},
		{1050, 1, 1050, 1110, 1150, 1250, 1, 1110},
		{1099, 0, 1100, 1150, 1200, 1300, 0, 1150}, // a µs before the first leaves
		{1100, 1, 1100, 1150, 1200, 1300, 1, 1150}, // the window is half-open
		{1160, 2, 1160, 1200, 1260, 1360, 2, 1200},
		{1000, 0, 1200, 1260, 1300, 1400, 0, 1260}, // the clock was set back
	} {
		got := [6]int64{
			m.ReadyAt(tt.now, 1), m.ReadyAt(tt.now, 3), m.ReadyAt(tt.now, 4), m.ReadyAt(tt.now, 7),
			m.Left(tt.now), m.FullAt(tt.now),
		}
		if want := [6]int64{tt.ready1, tt.ready3, tt.ready4, tt.ready7, tt.left, tt.full}; got != want {
			t.Errorf("at %d: ready for 1, 3, 4, 7, left, full = %v, want %v", tt.now, got, want)
		}
		m.Take(tt.now, tt.take)
	}
}

func TestSlidingLogGuarantee(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := anyLimit(t, SlidingLog)
		checkWindows(t, history(t, l, true), l.N, l.PeriodUS())
	})
}

// TestSlidingLogGivesNothingAway: it denies only where one more permit would be
// too many for the window that ends now.
func TestSlidingLogGivesNothingAway(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := anyLimit(t, SlidingLog)
		m := New(&l)
		now := epoch
		var taken []int64
		for range rapid.IntRange(1, 60).Draw(t, "calls") {
			now += rapid.Int64Range(0, 100).Draw(t, "wait")
			live := 0
			for _, at := range taken {
				if at > now-l.PeriodUS() {
					live++
				}
			}
			if got, want := m.Left(now), int64(l.N-live); got != want {
				t.Fatalf("at %d: %d left, want %d", now, got, want)
			}
			if m.ReadyAt(now, 1) <= now {
				m.Take(now, 1)
				taken = append(taken, now)
			}
		}
	})
}

func TestSlidingLogWhenTheLimitChanges(t *testing.T) {
	m := newLog(4, time.Second)
	for i := range int64(4) {
		m.Take(epoch+i, 1)
	}
	second := us(time.Second)
	for _, tt := range []struct{ n, left, ready1 int64 }{
		{4, 0, second},
		{2, 0, 2 + second}, // two of the four must leave and one more
		{6, 2, 3},
	} {
		m.Define(&Limit{Kind: SlidingLog, N: int(tt.n), Per: time.Second})
		if left, ready := m.Left(epoch+3), m.ReadyAt(epoch+3, 1)-epoch; left != tt.left || ready != tt.ready1 {
			t.Errorf("n %d: %d left, ready after %d µs; want %d, %d", tt.n, left, ready, tt.left, tt.ready1)
		}
	}
}

func TestSlidingLogKeepsNoMoreThanN(t *testing.T) {
	m := newLog(100, time.Microsecond)
	for i := range int64(100_000) {
		m.Take(epoch+i, 1)
	}
	if len(m.times) != 100 || cap(m.times) > 1000 {
		t.Errorf("keeps %d times in room for %d, want 100 in little more", len(m.times), cap(m.times))
	}
}
