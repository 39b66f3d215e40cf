package meter

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// us is a duration in the unit that meters count in.
func us(d time.Duration) int64 { return d.Microseconds() }

// anyLimit draws a small limit of one kind, so that meters fill up often.
func anyLimit(t *rapid.T, kind string) Limit {
	l := Limit{Kind: kind}
	if kind == Concurrency {
		l.Capacity = rapid.IntRange(1, 6).Draw(t, "capacity")
		return l
	}
	l.N, l.Per = rapid.IntRange(1, 7).Draw(t, "n"), time.Duration(rapid.IntRange(1, 500).Draw(t, "per"))*time.Microsecond
	l.Capacity = l.N
	if kind == Funnel || kind == TokenBucket {
		l.Capacity = rapid.IntRange(1, 6).Draw(t, "capacity")
	}
	if rapid.Bool().Draw(t, "has margin") {
		most := int64(l.Per)
		if kind == FixedWindow {
			most /= 2
		}
		l.Margin = time.Duration(rapid.Int64Range(0, most-1).Draw(t, "margin")).Truncate(time.Microsecond)
	}
	return l
}

const maxPermits = 10_000_000

var epoch = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC).UnixMicro()

// history feeds a meter with random calls, some of them exactly when it says
// that they may come, and returns what the clock showed at every permit.
func history(t *rapid.T, l Limit, backwards bool) []int64 {
	m := New(&l)
	now := epoch + rapid.Int64Range(0, 1000).Draw(t, "start")
	var taken []int64
	for range rapid.IntRange(1, 60).Draw(t, "calls") {
		k := rapid.Int64Range(1, int64(l.Capacity)).Draw(t, "cost")
		switch choice := rapid.IntRange(0, 9).Draw(t, "step"); {
		case choice < 5:
			now = m.ReadyAt(now, k)
		case choice == 9 && backwards:
			now -= rapid.Int64Range(0, 1200).Draw(t, "back")
		default:
			now += rapid.Int64Range(0, 150).Draw(t, "wait")
		}
		if c, ok := m.(*Leases); ok {
			c.Holder = fmt.Sprint(len(taken))
		}
		checkMeter(t, m, l, now, k)
		if m.ReadyAt(now, k) <= now {
			m.Take(now, k)
			for range k {
				taken = append(taken, now)
			}
		}
	}
	return taken
}

// checkMeter holds what a meter says at one moment against itself: left is just
// what readyAt allows, readyAt is true to the microsecond and grows with k, and
// at fullAt everything is there.
func checkMeter(t *rapid.T, m Meter, l Limit, now, k int64) {
	left, capacity := m.Left(now), int64(l.Capacity)
	if left < 0 || left > capacity {
		t.Fatalf("at %d: left %d of %d", now, left, capacity)
	}
	if left > 0 && m.ReadyAt(now, left) != now {
		t.Fatalf("at %d: %d left, but they are ready at %d", now, left, m.ReadyAt(now, left))
	}
	if left < capacity && m.ReadyAt(now, left+1) <= now {
		t.Fatalf("at %d: %d left, but one more is ready", now, left)
	}
	before := now
	for k := range capacity + 1 {
		at := m.ReadyAt(now, k)
		if at < before {
			t.Fatalf("at %d: permit %d is ready at %d, before the one before it at %d", now, k, at, before)
		}
		before = at
	}
	for k := capacity + 1; k < 4*capacity; k++ {
		if at := m.ReadyAt(now, k); at < m.ReadyAt(now, 1) {
			t.Fatalf("at %d: permit %d is expected at %d, before the first", now, k, at)
		}
	}
	if full := m.FullAt(now); full < now {
		t.Fatalf("at %d: full at %d, in the past", now, full)
	}
	at := m.ReadyAt(now, k)
	if again := m.ReadyAt(at, k); again != at {
		t.Fatalf("at %d: ready at %d, but then only at %d", now, at, again)
	}
	if at > now && m.ReadyAt(at-1, k) != at {
		t.Fatalf("at %d: ready at %d, but a microsecond before at %d", now, at, m.ReadyAt(at-1, k))
	}
}

// checkWindows fails if more than n of the permits lie in one window [t, t+w).
// They are in the order they were taken in. What counts is a meter's own time:
// when the clock is set back it stands still until the clock has caught up.
func checkWindows(t *rapid.T, taken []int64, n int, w int64) {
	for i := 1; i < len(taken); i++ {
		taken[i] = max(taken[i], taken[i-1])
	}
	for i := n; i < len(taken); i++ {
		if taken[i]-taken[i-n] < w {
			t.Fatalf("%d permits within %d µs, at most %d in %d µs: %v", n+1, taken[i]-taken[i-n], n, w, taken)
		}
	}
}

func TestMeterThatIsFullIsAsNew(t *testing.T) {
	for _, kind := range []string{Funnel, TokenBucket, FixedWindow, SlidingLog, SlidingWindow, Concurrency} {
		t.Run(kind, rapid.MakeCheck(func(t *rapid.T) {
			l := anyLimit(t, kind)
			m := New(&l)
			now := epoch
			for range rapid.IntRange(0, 8).Draw(t, "calls") {
				now += rapid.Int64Range(0, 100).Draw(t, "wait")
				if m.ReadyAt(now, 1) <= now {
					m.Take(now, 1)
				}
			}
			full := m.FullAt(now)
			fresh := New(&l)
			for k := range int64(2*l.Capacity + 1) {
				if got, want := m.ReadyAt(full, k), fresh.ReadyAt(full, k); got != want {
					t.Fatalf("at %d, when it is full: permit %d ready at %d, of a new meter at %d", full, k, got, want)
				}
			}
			if again := m.FullAt(full); again != full {
				t.Fatalf("full at %d, but then only at %d", full, again)
			}
		}))
	}
}

func TestSpanAndOwed(t *testing.T) {
	for _, tt := range []struct{ k, n, period, us, rest int64 }{
		{0, 3, 10, 0, 0},
		{1, 3, 10, 3, 1},
		{2, 3, 10, 6, 2},
		{3, 3, 10, 10, 0},
		{maxPermits, maxPermits, us(100 * 365 * day), us(100 * 365 * day), 0},
		{maxPermits, 1, us(time.Minute), maxPermits * us(time.Minute), 0},
		{maxPermits, 1, us(time.Hour), MaxTime, 0},       // in a thousand years
		{maxPermits, 1, us(100 * 365 * day), MaxTime, 0}, // would overflow
	} {
		gotUS, gotRest := Span(tt.k, tt.n, tt.period)
		if gotUS != tt.us || gotRest != tt.rest {
			t.Errorf("Span(%d, %d, %d) = %d, %d, want %d, %d", tt.k, tt.n, tt.period, gotUS, gotRest, tt.us, tt.rest)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Range(1, maxPermits).Draw(t, "n")
		period := rapid.Int64Range(1, us(15*time.Minute)).Draw(t, "period") // k of them end before MaxTime
		k := rapid.Int64Range(0, maxPermits).Draw(t, "k")
		at, rest := Span(k, n, period)
		if got := owed(at, rest, n, period); got != k {
			t.Fatalf("owed(Span(%d)) = %d", k, got)
		}
		if got := owed(at, rest+1, n, period); rest+1 < n && got != k+1 {
			t.Fatalf("owed just after Span(%d) = %d, want it rounded up", k, got)
		}
	})
}
