package fairqueue

import (
	"testing"

	"pgregory.net/rapid"
)

// TestAnyLanes draws what the simulations generate, so that what breaks a promise
// shrinks to few lanes, meters and troubles.
func TestAnyLanes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newSimulation(rapid.Uint64().Draw(t, "seed"))
		w.history.Tell = true
		w.latency = rapid.Int64Range(1, 5000).Draw(t, "latency")
		var meters []*simMeter
		for range rapid.IntRange(1, 4).Draw(t, "meters") {
			meters = append(meters, drawMeter(t, w))
		}
		for range rapid.IntRange(1, 8).Draw(t, "lanes") {
			queue, key := rapid.SampledFrom([]string{"q", "r"}).Draw(t, "queue"), rapid.SampledFrom([]string{"", "x"}).Draw(t, "key")
			l := w.fairLane(queue, key, rapid.Int64Range(1, 3).Draw(t, "weight"), drawNeeds(t, meters)...)
			w.enqueueAt(rapid.Int64Range(0, 2*second).Draw(t, "at"), l, rapid.IntRange(1, 200).Draw(t, "jobs"))
		}
		for range rapid.IntRange(0, 4).Draw(t, "troubles") {
			drawTrouble(t, w, rapid.SampledFrom(meters).Draw(t, "meter"), rapid.SampledFrom(w.lanes).Draw(t, "lane"))
		}
		w.run(100_000 * second)
		if left := w.left(); w.broken == "" && left != "" {
			w.broken = left
		}
		if w.broken != "" {
			t.Fatalf("%s\n%s%s", w.broken, w.scene(), w.history.Story(0, w.now, 80))
		}
	})
}

func drawMeter(t *rapid.T, w *simulation) *simMeter {
	name := string(rune('a' + len(w.meters)))
	capacity := rapid.Int64Range(1, 20).Draw(t, "capacity")
	switch rapid.SampledFrom([]string{"funnel", "window", "slots"}).Draw(t, "kind") {
	case "funnel":
		return w.rate(name, float64(rapid.IntRange(1, 100).Draw(t, "rate")), capacity)
	case "window":
		window := rapid.Int64Range(1, 10).Draw(t, "seconds") * second
		return w.meter(simMeter{name: name, window: window, interval: window / capacity, capacity: capacity})
	}
	return w.meter(simMeter{name: name, interval: rapid.Int64Range(1000, second).Draw(t, "duration"), lease: 10 * second, capacity: capacity})
}

func drawNeeds(t *rapid.T, meters []*simMeter) (needs []simNeed) {
	for _, m := range rapid.Permutation(meters).Draw(t, "needs")[:rapid.IntRange(1, min(3, len(meters))).Draw(t, "of")] {
		needs = append(needs, simNeed{m, rapid.Int64Range(1, m.capacity).Draw(t, "cost")})
	}
	return needs
}

func drawTrouble(t *rapid.T, w *simulation, m *simMeter, l *simLane) {
	at, last := rapid.Int64Range(0, 20*second).Draw(t, "from"), rapid.Int64Range(1, 10*second).Draw(t, "for")
	switch rapid.SampledFrom([]string{"stop", "pause", "speed", "takeover", "careless", "weigh"}).Draw(t, "trouble") {
	case "stop":
		w.at(at, func() { w.stop(l.queue) })
		w.at(at+last, func() { w.resume(l.queue) })
	case "pause":
		w.at(at, func() { w.pause(m, true) })
		w.at(at+last, func() { w.pause(m, false) })
	case "speed":
		w.at(at, func() { w.speed(m, 1, 3) })
	case "weigh":
		weight := rapid.IntRange(1, 10).Draw(t, "weight")
		w.at(at, func() { w.weigh(weight > 5, map[string]int{l.queue: weight}) })
	case "takeover":
		w.at(at, w.takeover)
	case "careless":
		w.at(at, func() { w.faultRate = 50 })
		w.at(at+last, func() { w.faultRate = 0 })
	}
}
