package meter

import (
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func newFunnel(n int, per time.Duration, capacity int) *gcra {
	return New(&Limit{Kind: Funnel, N: n, Per: per, Capacity: capacity}).(*gcra)
}

// TestGCRA_Drift takes each permit as early as possible and compares with exact fractions. Capacity
// 2 keeps TAT ahead of the clock. With capacity 1 each permit would start at a whole microsecond.
func TestGCRA_Drift(t *testing.T) {
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

// TestGCRA_Overflow: neither decades without a call nor the most extreme valid rates overflow.
func TestGCRA_Overflow(t *testing.T) {
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

// TestGCRA_MaxTime: a debt that ends at MaxTime stays there if the rate changes, as in Redis.
func TestGCRA_MaxTime(t *testing.T) {
	g := newFunnel(1, time.Microsecond, 1)
	g.Take(epoch, 1)
	before := epoch - us(time.Minute)
	g.Define(&Limit{Kind: Funnel, N: 1, Per: week, Capacity: 1, Since: before})
	if g.tat != MaxTime || g.rest != 0 {
		t.Errorf("a minute's permits at one a week are owed until %d and %d, want %d", g.tat, g.rest, int64(MaxTime))
	}
}
