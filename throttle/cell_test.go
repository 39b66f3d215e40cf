package throttle_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/throttle"
)

// TestThrottle: the known answers that the tests of throttled and redis-cell
// publish, burst 5 and one per second.
func TestThrottle(t *testing.T) {
	onEvery(t, func(t *testing.T, s *stage) {
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
			want := throttle.Cell{
				Limited: tt.limited, Limit: 5, Remaining: tt.remaining, RetryAfter: -1,
				ResetAfter: time.Duration(tt.reset * float64(time.Second)), Never: tt.quantity > 5,
			}
			if tt.retry >= 0 {
				want.RetryAfter = time.Duration(tt.retry * float64(time.Second))
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("call %d (-want +got):\n%s", i, diff)
			}
		}
		for _, tt := range []struct {
			burst, count int
			period       time.Duration
			quantity     int
		}{{-1, 1, time.Second, 1}, {1, 0, time.Second, 1}, {1, 1, 0, 1}, {1, 1, time.Second, -1}, {1, 1, time.Nanosecond, 1}} {
			if _, err := s.Throttle(t.Context(), "k", tt.burst, tt.count, tt.period, tt.quantity); err == nil {
				t.Errorf("Throttle %+v: want an error", tt)
			}
		}
	})
}
