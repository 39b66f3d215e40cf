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
