package throttle

import (
	"errors"
	"testing"
	"time"
)

func TestLocalPauseAndBlock(t *testing.T) {
	ctx := t.Context()
	l, now := newLocal(t, Limit{Name: "a", Kind: Funnel, Rate: PerSecond(1), Capacity: 5})
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check := func(what string, n int, want Outcome, retry time.Duration, left int) {
		t.Helper()
		d, err := l.AllowN(ctx, "a", "k", n)
		if err != nil || d.Outcome != want || d.RetryAfter != retry || d.Remaining != left {
			t.Errorf("%s: %s, %d left, %v; want %s, retry after %s, %d left", what, d, d.Remaining, err, want, retry, left)
		}
	}
	must(l.Pause(ctx, "a"))
	check("paused", 1, Denied, time.Minute, 0)
	check("paused, looking", 0, Denied, time.Minute, 0)
	must(l.Block(ctx, "a", "k", now.Add(time.Hour)))
	check("paused and blocked", 1, Denied, time.Hour, 0)
	must(l.Set(ctx, Limit{Name: "a", Kind: Funnel, Rate: PerSecond(2), Capacity: 5}))
	must(l.Resume(ctx, "a"))
	check("blocked", 1, Denied, time.Hour, 0)
	check("blocked, above capacity", 6, Never, 0, 0)
	if d, err := l.Allow(ctx, "a", "another"); err != nil || !d.OK() {
		t.Errorf("another key: %s, %v", d, err)
	}
	*now = now.Add(time.Hour)
	check("when the block ends", 5, Allowed, 0, 0)
	check("empty, looking", 0, Allowed, 0, 0)
	must(l.Block(ctx, "a", "k", now.Add(time.Hour)))
	must(l.Block(ctx, "a", "k", now.Add(-time.Hour)))
	check("unblocked", 1, Denied, time.Second/2, 0)
	must(l.Block(ctx, "a", "k", now.Add(time.Hour)))
	must(l.Reset(ctx, "a", "k"))
	check("reset", 1, Allowed, 0, 4)

	for name, err := range map[string]error{
		"Pause": l.Pause(ctx, "b"), "Resume": l.Resume(ctx, "b"), "Delete": l.Delete(ctx, "b"),
		"Reset": l.Reset(ctx, "b", ""), "Block": l.Block(ctx, "b", "", *now),
	} {
		if !errors.Is(err, ErrNoLimit) {
			t.Errorf("%s of an unknown limit: %v, want ErrNoLimit", name, err)
		}
	}
}
