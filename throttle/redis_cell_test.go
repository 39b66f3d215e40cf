package throttle_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/throttle"
)

// redisCell is S5: redis-cell's command CL.THROTTLE, whose limit comes with each call. redis-cell
// answers -1 to an allowed call as well as to one that can never be allowed.
func redisCell(t *testing.T, s *stage) {
	reply := func() throttle.Decision {
		t.Helper()
		d, err := s.Throttle(t.Context(), "laoqian:reply", 15, 30, time.Minute, 1)
		must(t, err)
		return d
	}
	for i := range 16 {
		d := reply()
		expect(t, "the limit", d.Capacity, 16)
		expect(t, fmt.Sprintf("call %d", i), []any{d.Outcome, d.Remaining, d.RetryAfter}, []any{allowed, 15 - i, time.Duration(0)})
		expect(t, "reset", d.ResetAfter, time.Duration(i+1)*2*time.Second)
	}
	d := reply()
	expect(t, "the 17th call", []any{d.Outcome, d.Remaining, d.ResetAfter}, []any{denied, 0, 32 * time.Second})
	s.wait(d.RetryAfter - time.Microsecond)
	expect(t, "right before the retry", reply().Outcome, denied)
	s.wait(time.Microsecond)
	expect(t, "the retry", reply().Outcome, allowed)
	s.wait(noon.Sub(s.now))
	knownAnswers(t, s)
}

// knownAnswers has the answers that the tests of throttled and redis-cell publish, for burst 5 and
// one per second. A retry of -1 is "impossible" if the call is limited.
func knownAnswers(t *testing.T, s *stage) {
	for i, tt := range []struct {
		ms, quantity, remaining int
		reset, retry            float64
		limited                 bool
	}{
		{0, 6, 5, 0, -1, true},
		{0, 1, 4, 1, -1, false},
		{0, 1, 3, 2, -1, false},
		{0, 1, 2, 3, -1, false},
		{0, 1, 1, 4, -1, false},
		{0, 1, 0, 5, -1, false},
		{0, 1, 0, 5, 1, true},
		{3000, 1, 2, 3, -1, false},
		{3100, 1, 1, 3.9, -1, false},
		{4000, 1, 1, 4, -1, false},
		{8000, 1, 4, 1, -1, false},
		{9500, 1, 4, 1, -1, false},
		{9500, 0, 4, 1, -1, false},
		{9500, 2, 2, 3, -1, false},
		{9500, 5, 2, 3, 3, true},
		{15000, 6, 5, 0, -1, true},
	} {
		s.wait(noon.Add(time.Duration(tt.ms) * time.Millisecond).Sub(s.now))
		got, err := s.Throttle(t.Context(), "k", 4, 1, time.Second, tt.quantity)
		must(t, err)
		want := throttle.Decision{
			Outcome: allowed, Key: "k", Cost: tt.quantity, Capacity: 5, Remaining: tt.remaining,
			ResetAfter: time.Duration(tt.reset * float64(time.Second)), At: s.now,
		}
		switch {
		case tt.quantity > 5:
			want.Outcome = impossible
		case tt.limited:
			want.Outcome, want.RetryAfter = denied, time.Duration(tt.retry*float64(time.Second))
		}
		expect(t, fmt.Sprintf("call %d", i), got, want)
	}
}

// TestThrottle_ChangedNumbers checks that permits in use become available by the numbers of the
// last call, also if that call was denied or only read the meter.
func TestThrottle_ChangedNumbers(t *testing.T) {
	for name, quantity := range map[string]int{"a denial": 1, "a look": 0, "never": 99} {
		t.Run(name, func(t *testing.T) {
			onEvery(t, func(t *testing.T, s *stage) {
				throttled := func(period time.Duration, quantity int) throttle.Decision {
					t.Helper()
					c, err := s.Throttle(t.Context(), "k", 9, 10, period, quantity)
					must(t, err)
					return c
				}
				expect(t, "takes all", throttled(time.Minute, 10).OK(), true)
				throttled(time.Hour, quantity)
				s.wait(7 * time.Second)
				expect(t, "at other numbers", throttled(time.Hour, 1).RetryAfter, 353*time.Second)
				s.wait(353 * time.Second)
				expect(t, "after that", throttled(time.Hour, 1).OK(), true)
			})
		})
	}
}
