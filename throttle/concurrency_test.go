package throttle

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func newConcurrency(capacity int) *concurrency {
	return newMeter(&activeLimit{Limit: Limit{Kind: Concurrency, Capacity: capacity, Lease: time.Second}}).(*concurrency)
}

func (c *concurrency) takeAs(holder string, now, k int64) {
	c.holder = holder
	c.take(now, k)
}

func TestConcurrency(t *testing.T) {
	c := newConcurrency(3)
	second := us(time.Second)
	c.takeAs("a", 0, 1)
	c.takeAs("b", 10, 2)
	for _, tt := range []struct{ now, ready1, ready2, ready3, ready9, left, full int64 }{
		{20, second, second + 10, second + 10, second + 10, 0, second + 10},
		{second - 1, second, second + 10, second + 10, second + 10, 0, second + 10},
		{second, second, second + 10, second + 10, second + 10, 1, second + 10},
		{second + 10, second + 10, second + 10, second + 10, 2*second + 10, 3, second + 10},
	} {
		got := [6]int64{
			c.readyAt(tt.now, 1), c.readyAt(tt.now, 2), c.readyAt(tt.now, 3), c.readyAt(tt.now, 9),
			c.left(tt.now), c.fullAt(tt.now),
		}
		if want := [6]int64{tt.ready1, tt.ready2, tt.ready3, tt.ready9, tt.left, tt.full}; got != want {
			t.Errorf("at %d: ready for 1, 2, 3, 9, left, full = %v, want %v", tt.now, got, want)
		}
	}
}

func TestConcurrencyHolderAsksTwice(t *testing.T) {
	c := newConcurrency(1)
	c.takeAs("a", 0, 1)
	c.holder = "a"
	if got := c.readyAt(10, 1); got != 10 {
		t.Fatalf("its own lease keeps it out until %d", got)
	}
	c.take(10, 1)
	if left, full := c.left(10), c.fullAt(10); left != 0 || full != 10+us(time.Second) {
		t.Errorf("%d left, full at %d; want one lease from the second time on", left, full)
	}
}

func TestConcurrencyExtendAndFree(t *testing.T) {
	c := newConcurrency(1)
	second := us(time.Second)
	c.takeAs("a", 0, 1)
	if !c.extend(second-1, "a") {
		t.Error("a lease that still runs was not extended")
	}
	if got := c.readyAt(second, 1); got != 2*second-1 {
		t.Errorf("ready at %d, want %d after the extension", got, 2*second-1)
	}
	if c.extend(2*second-1, "a") || c.extend(second, "b") {
		t.Error("extended a lease that has ended, or that never was")
	}
	c.takeAs("b", 3*second, 1)
	c.free("a")
	if got := c.left(3 * second); got != 0 {
		t.Errorf("%d left after somebody else's free, want 0", got)
	}
	c.free("b")
	if got := c.left(3 * second); got != 1 {
		t.Errorf("%d left after the holder's free, want 1", got)
	}
}

func TestConcurrencyWhenTheLimitChanges(t *testing.T) {
	c := newConcurrency(3)
	for i, holder := range []string{"a", "b", "c"} {
		c.takeAs(holder, int64(i), 1)
	}
	c.define(&activeLimit{Limit: Limit{Kind: Concurrency, Capacity: 1, Lease: time.Second}})
	if left, ready := c.left(10), c.readyAt(10, 1); left != 0 || ready != 2+us(time.Second) {
		t.Errorf("%d left, ready at %d; want none until all three leases end", left, ready)
	}
}

// TestConcurrencyGuarantee: at no moment are more than n permits held.
func TestConcurrencyGuarantee(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := anyLimit(t, Concurrency)
		l.Lease = 200 * time.Microsecond
		checkWindows(t, history(t, l, false), l.Capacity, us(l.Lease))
	})
}
