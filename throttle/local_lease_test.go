package throttle

import (
	"slices"
	"testing"
	"time"
)

func TestLocalLeases(t *testing.T) {
	ctx := t.Context()
	l, now := newLocal(t,
		Limit{Name: "slots", Kind: Concurrency, Capacity: 2, Lease: 10 * time.Second},
		Limit{Name: "rate", Kind: Funnel, Rate: PerSecond(100), Capacity: 100})
	needs := []Need{{Limit: "slots"}, {Limit: "rate"}}
	var holders []string
	for range 2 {
		d, err := l.AllowAll(ctx, needs...)
		if err != nil || !d.OK() || d.Holder == "" || slices.Contains(holders, d.Holder) || d.Lease != 10*time.Second {
			t.Fatalf("%s, holder %q, lease %s, %v; want a holder of its own for 10s", d, d.Holder, d.Lease, err)
		}
		holders = append(holders, d.Holder)
		*now = now.Add(time.Second)
	}
	if d, err := l.AllowAll(ctx, needs...); err != nil || d.OK() || d.RetryAfter != 8*time.Second {
		t.Errorf("%s, %v; want the first lease's end in 8s", d, err)
	}
	if held, err := l.Extend(ctx, holders[0], needs...); err != nil || !held {
		t.Errorf("extend: %v, %v", held, err)
	}
	*now = now.Add(9 * time.Second) // the second holder has died
	if held, err := l.Extend(ctx, holders[1], needs...); err != nil || held {
		t.Errorf("extend of a lost lease: %v, %v", held, err)
	}
	if got := allowed(t, l, "slots", "", 3); got != 1 {
		t.Errorf("%d more allowed, want 1", got)
	}
	if err := l.Free(ctx, holders[0], needs...); err != nil {
		t.Fatal(err)
	}
	if got := allowed(t, l, "slots", "", 3); got != 1 {
		t.Errorf("%d more allowed after one was freed, want 1", got)
	}
	if d, err := l.Allow(ctx, "rate", ""); err != nil || d.Holder != "" {
		t.Errorf("holder %q without a lease, %v", d.Holder, err)
	}
}
