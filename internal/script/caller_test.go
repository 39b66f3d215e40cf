package script

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestCallers_When: a reply that arrived late, or was read late, is recognized by comparison with a fast
// one. Its time is between the sending of the script and the arrival.
func TestCallers_When(t *testing.T) {
	const redisIsAhead = time.Hour
	type answer struct {
		sent, ran, came int           // in milliseconds
		steps           time.Duration // of Redis's clock, until then in all
		want            int           // when it may have run at the earliest
	}
	for _, tt := range []struct {
		name    string
		answers []answer
	}{
		{"the first may have run when it was sent", []answer{{0, 3, 5, 0, 0}}},
		{"the next as long before it came as the first", []answer{{0, 3, 5, 0, 0}, {10, 12, 14, 0, 14}}},
		{"read late", []answer{{0, 3, 5, 0, 0}, {10, 12, 1014, 0, 14}}},
		{"Redis was slow", []answer{{0, 3, 5, 0, 0}, {10, 1012, 1014, 0, 1014}}},
		{"the best of several", []answer{{0, 3, 5, 0, 0}, {10, 11, 12, 0, 12}, {20, 25, 35, 0, 26}, {40, 45, 146, 0, 46}}},
		{"after a step back it is as old as its script", []answer{{0, 3, 5, 0, 0}, {10, 12, 14, -time.Minute, 10}}},
		{"after a step forward", []answer{{0, 3, 5, 0, 0}, {10, 12, 14, time.Minute, 14}, {20, 22, 1024, time.Minute, 24}}},
		{"after a life and a half", []answer{{0, 1, 2, 0, 0}, {31_000, 31_001, 31_102, 0, 31_002}}},
		{"after three lives nothing is known", []answer{{0, 1, 2, 0, 0}, {91_000, 91_001, 91_102, 0, 91_000}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base, c := time.Now(), NewCallers()
				at := func(ms int) time.Time { return base.Add(time.Duration(ms) * time.Millisecond) }
				for i, a := range tt.answers {
					time.Sleep(time.Until(at(a.came)))
					us := at(a.ran).Add(redisIsAhead + a.steps).UnixMicro()
					if got := c.When(us, &Sent{last: at(a.sent)}).Sub(base).Round(time.Millisecond); got != time.Duration(a.want)*time.Millisecond {
						t.Errorf("reply %d: %s, want %d ms", i, got, a.want)
					}
				}
			})
		})
	}
}

// TestElapsed: time in which the machine slept counts, although the monotonic clock stops.
func TestElapsed(t *testing.T) {
	now := time.Now()
	for _, tt := range []struct {
		name     string
		from, to time.Time
	}{
		{"both clocks", now, now.Add(time.Minute)},
		{"only the wall clock", now.Round(0), now.Round(0).Add(time.Minute)},
	} {
		if got := Elapsed(tt.from, tt.to); got != time.Minute {
			t.Errorf("%s: %s, want 1m", tt.name, got)
		}
	}
}
