package meter

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func newWindow(n int, per time.Duration) *slidingWindow {
	return New(&Limit{Kind: SlidingWindow, N: n, Per: per}).(*slidingWindow)
}

func TestSlidingWindow(t *testing.T) {
	m := newWindow(3, 600*time.Microsecond) // parts of 10 µs
	for _, tt := range []struct{ now, take, ready1, ready3, ready4, left, full int64 }{
		{6003, 1, 6003, 6003, 6603, 3, 6003},
		{6009, 1, 6009, 6609, 6609, 2, 6609}, // the same part, which leaves as a whole
		{6010, 1, 6010, 6609, 6610, 1, 6609},
		{6608, 0, 6609, 6619, 7209, 0, 6619},
		{6609, 1, 6609, 6619, 7209, 2, 6619},
		{6500, 0, 6600, 7209, 7200, 0, 7209}, // the clock was set back: wait until it catches up
	} {
		got := [5]int64{m.ReadyAt(tt.now, 1), m.ReadyAt(tt.now, 3), m.ReadyAt(tt.now, 4), m.Left(tt.now), m.FullAt(tt.now)}
		if want := [5]int64{tt.ready1, tt.ready3, tt.ready4, tt.left, tt.full}; got != want {
			t.Errorf("at %d: ready for 1, 3, 4, left, full = %v, want %v", tt.now, got, want)
		}
		if tt.take > 0 {
			m.Take(tt.now, tt.take)
		}
	}
}

func TestSlidingWindowGuarantee(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := anyLimit(t, SlidingWindow)
		checkWindows(t, history(t, l, true), l.N, l.PeriodUS())
	})
}

// TestSlidingWindowGivesLittleAway: a permit returns at most one part late, and
// the state stays small.
func TestSlidingWindowGivesLittleAway(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 50).Draw(t, "n")
		per := time.Duration(rapid.IntRange(1, 5000).Draw(t, "per")) * time.Microsecond
		strict, bounded := newLog(n, per), newWindow(n, per)
		now := epoch
		for range rapid.IntRange(1, 300).Draw(t, "calls") {
			now += rapid.Int64Range(0, 200).Draw(t, "wait")
			late := bounded.ReadyAt(now, 1) - strict.ReadyAt(now, 1)
			if late < 0 || late >= bounded.width {
				t.Fatalf("at %d: ready %d µs after the exact time, want 0 to less than %d", now, late, bounded.width)
			}
			if bounded.ReadyAt(now, 1) <= now {
				strict.Take(now, 1)
				bounded.Take(now, 1)
			}
			if len(bounded.buckets) > bucketsPerPeriod+1 {
				t.Fatalf("%d parts", len(bounded.buckets))
			}
		}
	})
}

// TestSlidingWindowWhenTheLimitChanges: what was taken counts on, at the new
// period, and never for less time than it should.
func TestSlidingWindowWhenTheLimitChanges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before, after := anyLimit(t, SlidingWindow), anyLimit(t, SlidingWindow)
		m := New(&before)
		now := epoch
		var taken []int64
		step := func() {
			now += rapid.Int64Range(0, 20).Draw(t, "wait")
			if m.ReadyAt(now, 1) <= now {
				m.Take(now, 1)
				taken = append(taken, now)
			}
		}
		for range rapid.IntRange(1, 8).Draw(t, "calls before") {
			step()
		}
		changed := len(taken)
		m.Define(&after)
		for range rapid.IntRange(1, 8).Draw(t, "calls after") {
			checkMeter(t, m, after, now, 1)
			step()
		}
		window := min(before.PeriodUS(), after.PeriodUS())
		for i := changed; i < len(taken); i++ {
			if first := i - after.N; first >= 0 && taken[i]-taken[first] < window {
				t.Fatalf("%d permits within %d µs after %+v became %+v: %v", after.N+1, taken[i]-taken[first], before, after, taken)
			}
		}
	})
}

// TestSlidingWindowOfAMillion: a million a minute, in bounded memory.
func TestSlidingWindowOfAMillion(t *testing.T) {
	m := newWindow(1_000_000, time.Minute)
	now, taken := epoch, int64(0)
	for m.ReadyAt(now, 50) <= now {
		m.Take(now, 50)
		now += 2000
		taken += 50
	}
	if taken != 1_000_000 {
		t.Errorf("%d taken within %s, want a million", taken, time.Duration(now-epoch)*time.Microsecond)
	}
	if len(m.buckets) > bucketsPerPeriod+1 {
		t.Errorf("%d parts, want at most %d", len(m.buckets), bucketsPerPeriod+1)
	}
}
