package waitdb_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/fairqueue"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// TestForecast_Weights: tenants and queues take turns by their weights in a forecast, too.
func TestForecast_Weights(t *testing.T) {
	for _, strict := range []bool{false, true} {
		s := miniFixture(t)
		define(t, s, funnel("api", throttle.PerSecond(10)))
		must(t, s.lanes.SetWeights(background, map[string]fairqueue.Weight{"one": {Turns: 4, Strict: strict}, "two": {Turns: 1, Strict: strict}}, false))
		for i := range 201 {
			for _, job := range []waitdb.Job{
				{JobID: throttle.JobID{Queue: "one", ID: fmt.Sprint("paid", i)}, Fair: "paid", Weight: 3},
				{JobID: throttle.JobID{Queue: "one", ID: fmt.Sprint("free", i)}, Fair: "free"},
				{JobID: throttle.JobID{Queue: "two", ID: fmt.Sprint("two", i)}},
			} {
				_, err := s.lanes.Acquire(background, job, throttle.Need{Limit: "api"})
				must(t, err)
			}
		}
		s.pump(t)
		f := s.forecast(t)
		place := func(queue, id string) time.Duration {
			p, _, err := s.lanes.Position(background, throttle.JobID{Queue: queue, ID: id})
			must(t, err)
			e, ok := f.Job(p.Lane.Name, 60)
			if !ok {
				t.Fatalf("%s is not in the forecast", id)
			}
			return e.StartsIn
		}
		want := map[string]time.Duration{"paid": 10 * time.Second, "free": 30 * time.Second, "two": 30 * time.Second} // of 5 turns 3, 1 and 1
		if strict {
			want = map[string]time.Duration{"paid": 8 * time.Second, "free": 24 * time.Second, "two": 46 * time.Second}
		}
		for id, in := range want {
			queue := map[bool]string{true: "two", false: "one"}[id == "two"]
			if is := place(queue, id+"200"); is < in-2*time.Second || is > in+2*time.Second {
				t.Errorf("strict %v: the 60th of %s runs in %s, want about %s", strict, id, is, in)
			}
		}
	}
}
