package meter

import (
	"testing"
	"time"
)

// TestLeases_HolderAgain: a holder's own lease does not count against it.
func TestLeases_HolderAgain(t *testing.T) {
	m := New(&Limit{Kind: Concurrency, Capacity: 1, Lease: time.Second}).(*Leases)
	takeAs(m, "a", 0, 1)
	m.Holder = "a"
	if got := m.ReadyAt(10, 1); got != 10 {
		t.Fatalf("ready at %d, want 10", got)
	}
	m.Take(10, 1)
	if left, full := m.Left(10), m.FullAt(10); left != 0 || full != 10+us(time.Second) {
		t.Errorf("%d left, full at %d; want one lease from the second time on", left, full)
	}
}
