package forecast

import (
	"testing"
	"time"

	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// TestCostShare: jobs that give back most of their tokens are held up by the limit of requests, both
// if all their turns are simulated and if the last ones are estimated.
func TestCostShare(t *testing.T) {
	for jobs, want := range map[int]time.Duration{301: 145 * time.Second, 20_001: 9995 * time.Second} {
		opts := Options{
			Limits: []throttle.Limit{
				{Name: "requests", Kind: throttle.TokenBucket, Rate: throttle.PerMinute(120), Capacity: 11},
				{Name: "tokens", Kind: throttle.TokenBucket, Rate: throttle.PerMinute(60_000), Capacity: 20_000},
			},
			CostShare: func(limit string) float64 { return map[string]float64{"tokens": 0.1}[limit] },
		}
		if err := opts.Plan(waitdb.Job{JobID: throttle.JobID{Queue: "default"}}, jobs, throttle.Need{Limit: "requests"}, throttle.Need{Limit: "tokens", Cost: 4000}); err != nil {
			t.Fatal(err)
		}
		f := opts.Forecast(time.Unix(1_000_000, 0))
		_, last := f.Planned()
		if !last.Estimated || last.StartsIn < want-time.Second || last.StartsIn > want+time.Second {
			t.Errorf("%d jobs: the last one starts in %v, estimated %v; want about %v", jobs, last.StartsIn, last.Estimated, want)
		}
		if l := f.order[0]; f.order[0].bottleneckOf(l.jobs-1) != 0 {
			t.Errorf("%d jobs: the last one waits for tokens", jobs)
		}
	}
}
