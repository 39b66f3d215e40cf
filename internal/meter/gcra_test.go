package meter

import (
	"math/big"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func newFunnel(n int, per time.Duration, capacity int) *gcra {
	return New(&Limit{Kind: Funnel, N: n, Per: per, Capacity: capacity}).(*gcra)
}

func TestGCRA(t *testing.T) {
	g := newFunnel(3, 10*time.Microsecond, 2) // a permit each 3⅓ µs
	for _, tt := range []struct{ now, ready1, ready2, ready4, left int64 }{
		{100, 100, 100, 107, 2}, // takes one: tat 103⅓
		{100, 100, 104, 110, 1}, // tat 106⅔
		{100, 104, 107, 114, 0}, // nothing to take
		{103, 104, 107, 114, 0}, // still a third of a microsecond early
		{104, 104, 107, 114, 1}, // tat 110: the thirds have not been lost
		{200, 200, 200, 207, 2},
	} {
		got := [4]int64{g.ReadyAt(tt.now, 1), g.ReadyAt(tt.now, 2), g.ReadyAt(tt.now, 4), g.Left(tt.now)}
		if want := [4]int64{tt.ready1, tt.ready2, tt.ready4, tt.left}; got != want {
			t.Errorf("at %d: ready for 1, 2, 4 and left = %v, want %v", tt.now, got, want)
		}
		if got[0] <= tt.now {
			g.Take(tt.now, 1)
		}
	}
	if got := g.FullAt(200); got != 204 {
		t.Errorf("full at %d, want 204, 3⅓ rounded up", got)
	}
}

// TestGCRAGuarantee: no window of any length w has more than capacity + rate·w,
// by what the clock showed, even where it was set back.
func TestGCRAGuarantee(t *testing.T) {
	for _, kind := range []string{Funnel, TokenBucket} {
		t.Run(kind, rapid.MakeCheck(func(t *rapid.T) {
			l := anyLimit(t, kind)
			taken := history(t, l, true)
			slices.Sort(taken)
			for i := range taken {
				for j := i; j < len(taken); j++ {
					count, w := int64(j-i+1), taken[j]-taken[i]
					if (count-int64(l.Capacity))*l.PeriodUS() > w*int64(l.N) {
						t.Fatalf("%d permits within %d µs under %+v", count, w, l)
					}
				}
			}
		}))
	}
}

// TestGCRADoesNotDrift takes permits as early as they come and compares with
// exact fractions. Capacity 2 keeps TAT ahead of the clock: with 1 each start
// waits for a whole microsecond, and the guarantee forbids to catch that up.
func TestGCRADoesNotDrift(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, maxPermits).Draw(t, "n")
		period := rapid.Int64Range(int64(n), us(month)).Draw(t, "period")
		g := newFunnel(n, time.Duration(period)*time.Microsecond, 2)
		g.Take(epoch, 1)
		now := epoch
		for i := range int64(200) {
			now = g.ReadyAt(now, 1)
			exact := new(big.Int).Mul(big.NewInt(i), big.NewInt(period))
			exact.Add(exact, big.NewInt(int64(n-1))).Div(exact, big.NewInt(int64(n)))
			if got, want := now-epoch, exact.Int64(); got != want {
				t.Fatalf("permit %d after %d µs, want %d", i, got, want)
			}
			g.Take(now, 1)
		}
	})
}

func TestGCRAKeepsWhatIsOwedWhenTheLimitChanges(t *testing.T) {
	g := newFunnel(1, time.Second, 10)
	g.Take(epoch, 10)
	now := epoch + us(2500*time.Millisecond) // 7.5 permits are owed, so 8
	for _, tt := range []struct {
		n        int
		per      time.Duration
		capacity int
		left     int64
		ready1   time.Duration
	}{
		{1, time.Second, 10, 2, 0}, // unchanged: 2.5 have come back
		{2, time.Second, 10, 2, 0},
		{1, time.Second, 20, 12, 0},
		{1, time.Minute, 8, 0, time.Minute},
		{1, time.Minute, 5, 0, 4 * time.Minute},
	} {
		g.Define(&Limit{Kind: Funnel, N: tt.n, Per: tt.per, Capacity: tt.capacity, Since: now})
		if got := g.Left(now); got != tt.left {
			t.Errorf("%d per %s capacity %d: %d left, want %d", tt.n, tt.per, tt.capacity, got, tt.left)
		}
		if got := g.ReadyAt(now, 1) - now; got != us(tt.ready1) {
			t.Errorf("%d per %s capacity %d: ready in %d µs, want %s", tt.n, tt.per, tt.capacity, got, tt.ready1)
		}
		if got := g.ReadyAt(now, 0); got != now {
			t.Errorf("%d per %s capacity %d: looking is ready at %d, want now", tt.n, tt.per, tt.capacity, got)
		}
	}
}

// TestGCRASurvivesIdleness: decades without a call, and rates at the limits of
// what Validate lets through, overflow nothing.
func TestGCRASurvivesIdleness(t *testing.T) {
	g := newFunnel(maxPermits, time.Microsecond, maxPermits)
	g.Take(epoch, maxPermits)
	century := us(100 * 365 * day)
	if got := g.Left(epoch + century); got != maxPermits {
		t.Errorf("after a century %d left, want %d", got, maxPermits)
	}
	// 10 million centuries ahead end at MaxTime: too strict, but never too much.
	slow := newFunnel(1, 100*365*day, maxPermits)
	for range 10 {
		ready, left := slow.ReadyAt(epoch, maxPermits), slow.Left(epoch)
		if ready < epoch || left < 0 || left > maxPermits {
			t.Fatalf("ready at %d, %d left", ready, left)
		}
		if slow.ReadyAt(epoch, maxPermits/10) <= epoch {
			slow.Take(epoch, maxPermits/10)
		}
	}
	if got := slow.ReadyAt(epoch, maxPermits); got <= epoch+century {
		t.Errorf("all permits ready at %d, want it more than a century ahead", got)
	}
	if got := g.ReadyAt(epoch-century, 1); got <= epoch-century {
		t.Errorf("with the clock set back a century: ready at %d, want later", got)
	}
}

// TestGCRADebtEndsAtFar: what is owed at the end of time stays there when the rate
// changes again, as in Redis.
func TestGCRADebtEndsAtFar(t *testing.T) {
	g := newFunnel(1, time.Microsecond, 1)
	g.Take(epoch, 1)
	before := epoch - us(time.Minute)
	g.Define(&Limit{Kind: Funnel, N: 1, Per: week, Capacity: 1, Since: before})
	if g.tat != MaxTime || g.rest != 0 {
		t.Errorf("a minute's permits at one a week are owed until %d and %d, want %d", g.tat, g.rest, int64(MaxTime))
	}
}
