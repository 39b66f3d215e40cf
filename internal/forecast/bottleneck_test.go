package forecast

import (
	"testing"
	"time"

	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// TestBottleneck_WindowBesideFunnel: of a window and a funnel, the one that alone would be slower is the
// bottleneck, at whatever time of the window, although jobs wait longer for the funnel in each window.
func TestBottleneck_WindowBesideFunnel(t *testing.T) {
	for perSecond, want := range map[int]string{5: "funnel", 9: "funnel", 15: "window", 20: "window", 50: "window"} {
		for _, jobs := range []int{6000, 12_000} {
			for second := int64(0); second < 60; second += 19 {
				opts := Options{Limits: []throttle.Limit{
					{Name: "funnel", Kind: throttle.Funnel, Rate: throttle.PerSecond(perSecond)},
					{Name: "window", Kind: throttle.FixedWindow, Rate: throttle.PerMinute(600)},
				}}
				if err := opts.Plan(waitdb.Job{JobID: throttle.JobID{Queue: "default"}}, jobs, throttle.Need{Limit: "funnel"}, throttle.Need{Limit: "window"}); err != nil {
					t.Fatal(err)
				}
				_, last := opts.Forecast(time.Unix(6_000_000+second, 0)).Planned()
				if last.Limit != want {
					t.Errorf("%d jobs under %d/s and 600/m, %d s into a window: the last one waits for %s, want %s", jobs, perSecond, second, last.Limit, want)
				}
			}
		}
	}
}
