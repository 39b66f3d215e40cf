package meter

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func newConcurrency(capacity int) *Leases {
	return New(&Limit{Kind: Concurrency, Capacity: capacity, Lease: time.Second}).(*Leases)
}

func (c *Leases) takeAs(holder string, now, k int64) {
	c.Holder = holder
	c.Take(now, k)
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
			c.ReadyAt(tt.now, 1), c.ReadyAt(tt.now, 2), c.ReadyAt(tt.now, 3), c.ReadyAt(tt.now, 9),
			c.Left(tt.now), c.FullAt(tt.now),
		}
		if want := [6]int64{tt.ready1, tt.ready2, tt.ready3, tt.ready9, tt.left, tt.full}; got != want {
			t.Errorf("at %d: ready for 1, 2, 3, 9, left, full = %v, want %v", tt.now, got, want)
		}
	}
}

func TestConcurrencyHolderAsksTwice(t *testing.T) {
	c := newConcurrency(1)
	c.takeAs("a", 0, 1)
	c.Holder = "a"
	if got := c.ReadyAt(10, 1); got != 10 {
		t.Fatalf("its own lease keeps it out until %d", got)
	}
	c.Take(10, 1)
	if left, full := c.Left(10), c.FullAt(10); left != 0 || full != 10+us(time.Second) {
		t.Errorf("%d left, full at %d; want one lease from the second time on", left, full)
	}
}

func TestConcurrencyExtendAndFree(t *testing.T) {
	c := newConcurrency(1)
	second := us(time.Second)
	c.takeAs("a", 0, 1)
	if !c.Extend(second-1, "a") {
		t.Error("a lease that still runs was not extended")
	}
	if got := c.ReadyAt(second, 1); got != 2*second-1 {
		t.Errorf("ready at %d, want %d after the extension", got, 2*second-1)
	}
	if c.Extend(2*second-1, "a") || c.Extend(second, "b") {
		t.Error("extended a lease that has ended, or that never was")
	}
	c.takeAs("b", 3*second, 1)
	c.Free("a")
	if got := c.Left(3 * second); got != 0 {
		t.Errorf("%d left after somebody else's free, want 0", got)
	}
	c.Free("b")
	if got := c.Left(3 * second); got != 1 {
		t.Errorf("%d left after the holder's free, want 1", got)
	}
}

func TestConcurrencyWhenTheLimitChanges(t *testing.T) {
	c := newConcurrency(3)
	for i, holder := range []string{"a", "b", "c"} {
		c.takeAs(holder, int64(i), 1)
	}
	c.Define(&Limit{Kind: Concurrency, Capacity: 1, Lease: time.Second})
	if left, ready := c.Left(10), c.ReadyAt(10, 1); left != 0 || ready != 2+us(time.Second) {
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
