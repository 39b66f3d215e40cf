package meter

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func newLog(n int, per time.Duration) *slidingLog {
	return New(&Limit{Kind: SlidingLog, N: n, Per: per}).(*slidingLog)
}

// TestSlidingLog_Exact: a permit is denied only if the window that ends now would hold too many.
func TestSlidingLog_Exact(t *testing.T) {
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
