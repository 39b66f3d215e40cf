package throttle

import (
	"testing"
	"time"
)

// TestS5LocalThrottleKnownAnswers are the answers that redis-cell and throttled
// give: five at once, one a second.
func TestS5LocalThrottleKnownAnswers(t *testing.T) {
	l, now := newLocal(t)
	start := *now
	const never = -1
	for i, tt := range []struct {
		ms, quantity, remaining int
		reset, retry            float64 // seconds
		limited                 bool
	}{
		{0, 6, 5, 0, never, true},
		{0, 1, 4, 1, never, false},
		{0, 1, 3, 2, never, false},
		{0, 1, 2, 3, never, false},
		{0, 1, 1, 4, never, false},
		{0, 1, 0, 5, never, false},
		{0, 1, 0, 5, 1, true},
		{3000, 1, 2, 3, never, false},
		{3100, 1, 1, 3.9, never, false},
		{4000, 1, 1, 4, never, false},
		{8000, 1, 4, 1, never, false},
		{9500, 1, 4, 1, never, false},
		{9500, 0, 4, 1, never, false},
		{9500, 2, 2, 3, never, false},
		{9500, 5, 2, 3, 3, true},
		{15000, 6, 5, 0, never, true},
	} {
		*now = start.Add(time.Duration(tt.ms) * time.Millisecond)
		got, err := l.Throttle(t.Context(), "key", 4, 1, time.Second, tt.quantity)
		if err != nil {
			t.Fatal(err)
		}
		want := Cell{
			Limited: tt.limited, Limit: 5, Remaining: tt.remaining, Never: tt.quantity > 5,
			RetryAfter: -1, ResetAfter: time.Duration(tt.reset * float64(time.Second)),
		}
		if tt.retry != never {
			want.RetryAfter = time.Duration(tt.retry * float64(time.Second))
		}
		if got != want {
			t.Errorf("call %d at %d ms, quantity %d: %+v, want %+v", i, tt.ms, tt.quantity, got, want)
		}
	}
}

// TestS5LocalThrottleNumbers is the example of redis-cell's own page.
func TestS5LocalThrottleNumbers(t *testing.T) {
	l, _ := newLocal(t)
	for i := range 17 {
		c, err := l.Throttle(t.Context(), "laoqian:reply", 15, 30, time.Minute, 1)
		if err != nil {
			t.Fatal(err)
		}
		want := [5]int64{0, 16, 15 - int64(i), -1, 2 * int64(i+1)}
		if i == 16 {
			want = [5]int64{1, 16, 0, 2, 32}
		}
		if got := c.Numbers(); got != want {
			t.Errorf("call %d: %v, want %v", i, got, want)
		}
	}
}

func TestLocalThrottleRefuses(t *testing.T) {
	l, _ := newLocal(t)
	for _, tt := range []struct {
		name                      string
		maxBurst, count, quantity int
		period                    time.Duration
	}{
		{"no count", 1, 0, 1, time.Second},
		{"negative count", 1, -1, 1, time.Second},
		{"no period", 1, 1, 1, 0},
		{"negative period", 1, 1, 1, -time.Second},
		{"negative burst", -1, 1, 1, time.Second},
		{"negative quantity", 1, 1, -1, time.Second},
	} {
		if c, err := l.Throttle(t.Context(), "k", tt.maxBurst, tt.count, tt.period, tt.quantity); err == nil {
			t.Errorf("%s: %+v, want an error", tt.name, c)
		}
	}
}

// TestLocalThrottleIsApartFromLimits: a limit's meter and a cell of the same key
// do not meet.
func TestLocalThrottleIsApartFromLimits(t *testing.T) {
	l, _ := newLocal(t, Limit{Name: "k", Kind: Funnel, Rate: PerSecond(1), Capacity: 2})
	if c, err := l.Throttle(t.Context(), "k", 0, 1, time.Second, 1); err != nil || c.Limited {
		t.Fatal(c, err)
	}
	if got := allowed(t, l, "k", "k", 3); got != 2 {
		t.Errorf("%d allowed by the limit, want 2", got)
	}
}
