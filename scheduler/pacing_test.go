package scheduler

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/throttle"
)

// TestPace: if a call leaves late, as on a busy machine, the next call keeps the interval to it,
// and the limit's rate is used all the same.
func TestPace(t *testing.T) {
	const interval, calls = 200 * time.Millisecond, 100
	for _, kind := range []throttle.Kind{throttle.Funnel, throttle.SlidingLog} {
		var left []time.Time
		handle := func(ctx context.Context, _ *asynq.Task) error {
			time.Sleep(rand.N(interval / 2))
			Pace(ctx)
			left = append(left, time.Now())
			return nil
		}
		limit := throttle.Limit{Name: "api", Kind: kind, Rate: throttle.Every(interval)}
		virtual(t, settings{config: oneWorker, limits: []throttle.Limit{limit}, handle: handle}, func(_ *testing.T, st *stack) {
			st.enqueueN(calls, "")
			time.Sleep(time.Minute)
		})
		if len(left) != calls {
			t.Fatalf("%s: %d calls", kind, len(left))
		}
		for i := range calls - 1 {
			if apart := left[i+1].Sub(left[i]); apart < interval {
				t.Errorf("%s: call %d leaves %s after the one before", kind, i+1, apart)
			}
		}
		if took, most := left[calls-1].Sub(left[0]), calls*interval*21/20; took > most {
			t.Errorf("%s: %d calls take %s, want %s at most", kind, calls, took, most)
		}
	}
}

// TestPacing_LateCallsOnly: a call does not wait after its limit was reset or changed, or if more
// than one call is given at once. Old meters are removed.
func TestPacing_LateCallsOnly(t *testing.T) {
	one := throttle.Decision{Outcome: throttle.Allowed, Limit: "api", Cost: 1, Capacity: 1, ResetAfter: time.Second / 2}
	for name, change := range map[string]func(*throttle.Decision){
		"reset":  func(d *throttle.Decision) { d.ResetAfter = time.Hour },
		"denied": func(d *throttle.Decision) { d.Outcome = throttle.Denied },
		"burst":  func(d *throttle.Decision) { d.Capacity = 2 },
		"left":   func(d *throttle.Decision) { d.Remaining = 1 },
		"leased": func(d *throttle.Decision) { d.Lease = time.Minute },
	} {
		var s pacing
		d := one
		change(&d)
		s.startAt(d)
		if at := s.startAt(d); time.Until(at) > 0 {
			t.Errorf("%s: it leaves in %s", name, time.Until(at))
		}
	}
	var s pacing
	for i := range 2*maxPaced + 1 {
		one.Key = string(rune(i))
		s.startAt(one)
	}
	if len(s.next) > maxPaced {
		t.Errorf("%d meters are remembered", len(s.next))
	}
}
