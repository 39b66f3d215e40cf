package fairqueue

import (
	"fmt"
	"testing"
)

// TestEqualTurnsBesideAWindow: a lane that needs another limit too has as many turns of a limit
// whose permits come all at once as a lane that needs nothing else, and no permit stays unused.
func TestEqualTurnsBesideAWindow(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	windows := map[string]worldMeter{
		"window":         {window: 10 * second, interval: second / 20, capacity: 200},
		"calendar":       {window: 100 * second, interval: second / 20, capacity: 2000},
		"log":            {window: 10 * second, interval: second / 20, capacity: 200, sliding: 1},
		"sliding window": {window: 10 * second, interval: second / 20, capacity: 200, sliding: second / 6},
		"bucket":         {interval: second / 20, capacity: 50},
	}
	others := map[string]worldMeter{
		"a slot":          {interval: second / 14, lease: 10 * second, capacity: 1},
		"slots":           {interval: second * 6 / 14, lease: 10 * second, capacity: 6},
		"a funnel":        {interval: second / 14, capacity: 1},
		"a bucket":        {interval: second / 14, capacity: 10},
		"a short window":  {window: second, interval: second / 14, capacity: 14},
		"an ample funnel": {interval: second / 30, capacity: 1},
		"a narrow funnel": {interval: second / 2, capacity: 1},
		"a narrow slot":   {interval: second, lease: 10 * second, capacity: 1},
	}
	for name, window := range windows {
		for other, limit := range others {
			for _, queue := range []string{"q", "r"} {
				t.Run(fmt.Sprintf("%s and %s, %s", name, other, queue), func(t *testing.T) {
					w := newWorld(1)
					w.latency = 100
					window.name, limit.name = "window", "limit"
					shared := w.meter(window)
					both, alone := w.lane("q", one(shared, w.meter(limit))...), w.lane(queue, one(shared)...)
					w.enqueueAt(1, both, endless)
					w.enqueueAt(2, alone, endless)
					w.pass(t, 100)
					w.count()
					shared.used = 0
					w.pass(t, 1100)
					gives := 1000 * second / window.interval
					least := min(gives*45/100, 1000*second/limit.interval*max(1, limit.lease/(10*second)*limit.capacity)*9/10)
					if used := shared.used * 100 / gives; int64(both.done) < least || int64(alone.done) < gives*45/100 || used < 98 {
						t.Errorf("%d and %d turns, want %d; %d %% of %d permits are used", both.done, alone.done, least, used, gives)
					}
				})
			}
		}
	}
}
