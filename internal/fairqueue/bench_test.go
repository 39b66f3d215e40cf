package fairqueue

import (
	"fmt"
	"strconv"
	"testing"
)

// BenchmarkTurns gives turns to lanes that share a limit, each of another host,
// where every meter is always ready.
func BenchmarkTurns(b *testing.B) {
	for _, lanes := range []int{1, 100, 10_000} {
		b.Run(strconv.Itoa(lanes), func(b *testing.B) {
			c := New()
			needs := map[string][]Need{}
			for i := range lanes {
				host := fmt.Sprintf("host|%d", i)
				name := "q\n" + host + "\nshared|"
				needs[name] = []Need{{Meter: host, Cost: 1, Known: true, Refill: 1000}, {Meter: "shared|", Cost: 1, Known: true, Refill: 1}}
				c.AddLane(name, int64(i))
			}
			now, given := int64(0), 0
			results := make([]Result, 0, 64)
			for b.Loop() {
				now++
				results = results[:0]
				for _, t := range c.Turns(now, 64) {
					results = append(results, Result{Job: "job", At: now, Until: now + 250_000, Next: needs[t.Lane], MaxAdvance: maxAdvance, Granted: 1})
				}
				c.Tried(now, results)
				c.ToPromote(now, 64)
				for _, lane := range c.ToExpire(now, 64) {
					c.Expired(now, lane, 0, nil, true)
				}
				given += len(results)
			}
			b.ReportMetric(float64(given)/b.Elapsed().Seconds(), "turns/s")
		})
	}
}
