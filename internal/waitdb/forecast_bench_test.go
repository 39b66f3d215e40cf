package waitdb_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/forecast"
	"github.com/headgate/headgate/throttle"
)

// BenchmarkForecast makes forecasts of so many jobs in so many lanes that share a limit,
// each of another host.
func BenchmarkForecast(b *testing.B) {
	limits := []throttle.Limit{funnel("all", throttle.PerSecond(50)), window("day", throttle.PerDay(100_000)), funnel("host", throttle.PerSecond(1))}
	for _, n := range []struct{ lanes, jobs int }{{1, 100_000}, {10, 10_000}, {1000, 100}, {5000, 20}, {5000, 1000}} {
		b.Run(fmt.Sprintf("lanes=%d/jobs=%d", n.lanes, n.lanes*n.jobs), func(b *testing.B) {
			for b.Loop() {
				opts := forecast.Options{Limits: limits}
				for i := range n.lanes {
					_ = opts.Plan(inQueue("q"), n.jobs, throttle.Need{Limit: "all"}, throttle.Need{Limit: "day"}, throttle.Need{Limit: "host", Key: fmt.Sprint(i)})
				}
				opts.Forecast(time.Now())
			}
		})
	}
}
