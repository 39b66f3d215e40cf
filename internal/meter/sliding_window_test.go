package meter

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func newWindow(n int, per time.Duration) *slidingWindow {
	return New(&Limit{Kind: SlidingWindow, N: n, Per: per}).(*slidingWindow)
}

// TestSlidingWindow_Late: a permit returns less than one bucket late, and the state stays small.
func TestSlidingWindow_Late(t *testing.T) {
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
				t.Fatalf("%d buckets", len(bounded.buckets))
			}
		}
	})
}

// TestSlidingWindow_Redefined: permits count for the new period after a change, and never for less
// time.
func TestSlidingWindow_Redefined(t *testing.T) {
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

// TestSlidingWindow_Memory: a million a minute, in bounded memory.
func TestSlidingWindow_Memory(t *testing.T) {
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
		t.Errorf("%d buckets, want at most %d", len(m.buckets), bucketsPerPeriod+1)
	}
}
