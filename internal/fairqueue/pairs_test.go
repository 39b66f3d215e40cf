package fairqueue

var (
	pairWindows = []simMeter{
		{name: "window", window: 10 * second, interval: second / 20, capacity: 200},
		{name: "calendar", window: 100 * second, interval: second / 20, capacity: 2000},
		{name: "log", window: 10 * second, interval: second / 20, capacity: 200, sliding: 1},
		{name: "sliding window", window: 10 * second, interval: second / 20, capacity: 200, sliding: second / 6},
		{name: "bucket", interval: second / 20, capacity: 50},
	}
	pairOthers = []simMeter{
		{name: "a slot", interval: second / 14, lease: 10 * second, capacity: 1},
		{name: "slots", interval: second * 6 / 14, lease: 10 * second, capacity: 6},
		{name: "two slots", interval: second / 8, lease: 10 * second, capacity: 2},
		{name: "a funnel", interval: second / 14, capacity: 1},
		{name: "a bucket", interval: second / 14, capacity: 10},
		{name: "a short window", window: second, interval: second / 14, capacity: 14},
		{name: "an ample funnel", interval: second / 30, capacity: 1},
		{name: "a narrow funnel", interval: second / 2, capacity: 1},
		{name: "a narrow slot", interval: second, lease: 10 * second, capacity: 1},
	}
)

// pairs is a lane that needs two limits, and one of the same or another queue that needs the
// first of them alone, whose permits mostly return all at once.
func pairs(seed uint64) *simulation {
	w := newSimulation(seed)
	w.latency = 100
	i := int(seed) / 2
	window, other := w.meter(pairWindows[i%len(pairWindows)]), w.meter(pairOthers[i%len(pairOthers)])
	w.enqueueAt(1, w.lane("q", one(window, other)...), endless)
	w.enqueueAt(2, w.lane([]string{"q", "r"}[seed%2], one(window)...), endless)
	w.at(100*second, func() {
		w.count()
		window.used = 0
	})
	return w
}

// judgePairs sees that both lanes have as many turns as each other, and no permit stays unused.
func (w *simulation) judgePairs() {
	window, other := w.lanes[1].needs[0].simMeter, w.lanes[0].needs[0].simMeter
	if other == window {
		other = w.lanes[0].needs[1].simMeter
	}
	gives := (w.now - 100*second) / window.interval
	slots := max(1, other.lease/(10*second)*other.capacity)
	for i, least := range []int64{min(gives*45/100, (w.now-100*second)/other.interval*slots*9/10), gives * 45 / 100} {
		if l := w.lanes[i]; int64(l.done) < least {
			w.breaks(l, "had %d turns beside %s, want %d", l.done, other.name, least)
		}
	}
	if window.used < gives*98/100 {
		w.breaks(w.lanes[1], "%d of %d permits of %s are used", window.used, gives, window.name)
	}
}
