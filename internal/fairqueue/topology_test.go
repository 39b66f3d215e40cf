package fairqueue

import (
	"fmt"
	"math"
	"math/rand/v2"
)

const second = 1_000_000

// topology builds random lanes on random meters.
type topology func(seed uint64) *simulation

func newTopology(seed uint64) (*simulation, *rand.Rand) {
	w := newSimulation(seed)
	w.latency = 100
	return w, rand.New(rand.NewPCG(seed, 2))
}

// rate is a meter that gives n permits in a second.
func (w *simulation) rate(name string, n float64, capacity int64) *simMeter {
	return w.meter(simMeter{name: name, interval: int64(second / n), capacity: capacity})
}

// one is one permit of each.
func one(meters ...*simMeter) (needs []simNeed) {
	for _, m := range meters {
		needs = append(needs, simNeed{m, 1})
	}
	return needs
}

// funnel is any funnel from one permit in 3 s to 100 in one.
func (w *simulation) funnel(r *rand.Rand) *simMeter {
	return w.meter(simMeter{
		name:     fmt.Sprintf("m%d", len(w.meters)),
		interval: int64(second / math.Pow(10, -0.5+2.5*r.Float64())),
		capacity: []int64{1, 1, 2, 5, 10, 50}[r.IntN(6)],
	})
}

// windowed is any fixed window of 1 to 10 s.
func (w *simulation) windowed(r *rand.Rand) *simMeter {
	m := simMeter{name: fmt.Sprintf("m%d", len(w.meters)), window: second * (1 + r.Int64N(10)), capacity: 1 + r.Int64N(50)}
	m.interval = m.window / m.capacity
	return w.meter(m)
}

// slots is any concurrency limit for jobs of 20 to 500 ms.
func (w *simulation) slots(r *rand.Rand) *simMeter {
	return w.meter(simMeter{name: fmt.Sprintf("m%d", len(w.meters)), interval: 20_000 + r.Int64N(480_000), capacity: 1 + r.Int64N(10), lease: 10 * second})
}

// anyNeeds is one to three of the meters, mostly one permit of each.
func anyNeeds(r *rand.Rand, meters []*simMeter) (needs []simNeed) {
	for _, i := range r.Perm(len(meters))[:1+r.IntN(min(3, len(meters)))] {
		cost := int64(1)
		if r.Float64() > .8 {
			cost = 1 + r.Int64N(meters[i].capacity)
		}
		needs = append(needs, simNeed{meters[i], cost})
	}
	return needs
}

const endless = 1_000_000_000

// overlapping is lanes with endless backlogs on funnels that overlap.
func overlapping(seed uint64) *simulation {
	w, r := newTopology(seed)
	var meters []*simMeter
	for range 2 + r.IntN(5) {
		meters = append(meters, w.funnel(r))
	}
	w.endlessLanes(r, seed, meters)
	return w
}

// endlessLanes is lanes with endless backlogs, in half of the worlds some of a queue or of
// a key together, which have weights.
func (w *simulation) endlessLanes(r *rand.Rand, seed uint64, meters []*simMeter) {
	weighs := seed%2 == 1
	weights, keys := map[string]int{}, []int64{1 + r.Int64N(5), 1 + r.Int64N(5), 1 + r.Int64N(5)}
	for i := range 2 + r.IntN(11) {
		queue, key := i, 0
		if weighs {
			queue, key = r.IntN(3), r.IntN(3)
		}
		name := fmt.Sprintf("q%d", queue)
		weights[name] = 1
		if weighs {
			weights[name] += queue * 2
		}
		l := w.fairLane(name, []string{"", "x", "y"}[key], keys[key], anyNeeds(r, meters)...)
		if key == 0 {
			l.weight = 1
		}
		w.enqueueAt(r.Int64N(2*second), l, endless)
	}
	w.weigh(false, weights)
}

// anyMeters is two to six limits of all kinds.
func (w *simulation) anyMeters(r *rand.Rand) (meters []*simMeter) {
	for range 2 + r.IntN(5) {
		kind := []func(*rand.Rand) *simMeter{w.funnel, w.funnel, w.windowed, w.slots}[r.IntN(4)]
		meters = append(meters, kind(r))
	}
	return meters
}

// mixed is the same on limits of all kinds.
func mixed(seed uint64) *simulation {
	w, r := newTopology(seed)
	w.endlessLanes(r, seed, w.anyMeters(r))
	return w
}

// sharing is a lane that needs two limits beside those that need one of them.
func sharing(seed uint64) *simulation {
	w, r := newTopology(seed)
	w.latency = 1 + r.Int64N(1000)
	rates := [][4]int64{{50, 10, 50, 10}, {10, 10, 3, 1}, {20, 1, 1, 1}, {1, 1, 1, 1}, {5, 1, 5, 1}, {3, 1, 2, 1}, {100, 1, 7, 5}}[seed%7]
	a, b := w.rate("a", float64(rates[0]), rates[1]), w.rate("b", float64(rates[2]), rates[3])
	for _, needs := range [][]simNeed{one(a), one(b), one(a, b)} {
		w.enqueueAt(0, w.lane("q", needs...), endless)
	}
	return w
}

// hosts is many hosts that are used with and without a limit that they share.
func hosts(seed uint64) *simulation {
	w, r := newTopology(seed)
	n := 20 + r.IntN(100)
	shared := w.rate("shared", float64(n)/2, 1+r.Int64N(10))
	for i := range n {
		host := w.rate(fmt.Sprintf("host%d", i), 1, 1)
		w.enqueueAt(0, w.lane("q", one(host, shared)...), endless)
		w.enqueueAt(0, w.lane("q", one(host)...), endless)
	}
	return w
}

// stoppedQueue is a lane that shares a limit with many of a queue that weighs as much as
// all of these, and has never taken anything.
func stoppedQueue(seed uint64) *simulation {
	w, r := newTopology(seed)
	shared := w.rate("shared", 5+float64(r.IntN(20)), 10)
	n := 50 + r.IntN(100)
	for i := range n {
		w.enqueueAt(0, w.lane("stopped", one(w.rate(fmt.Sprintf("tenant%d", i), 1, 10), shared)...), endless)
	}
	w.enqueueAt(r.Int64N(second), w.lane("q", one(shared)...), endless)
	w.weigh(false, map[string]int{"stopped": n, "q": 1})
	w.stop("stopped")
	return w
}

// troubled is bursts of jobs on limits of all kinds, while queues stop, limits are paused and
// changed, queues weigh more or less, jobs get lost or late, answers get lost and processes take
// over from each other. After two minutes the trouble ends.
func faulty(seed uint64) *simulation {
	w, r := newTopology(seed)
	w.faultRate = r.IntN(30)
	meters := w.anyMeters(r)
	for i := range 2 + r.IntN(11) {
		l := w.fairLane(fmt.Sprintf("q%d", i%3), []string{"", "x", "y"}[r.IntN(3)], 1+r.Int64N(9), anyNeeds(r, meters)...)
		for range 1 + r.IntN(5) {
			w.enqueueAt(r.Int64N(60*second), l, 1+r.IntN(30))
		}
	}
	for range r.IntN(20) {
		at, last := r.Int64N(100*second), r.Int64N(20*second)
		m := meters[r.IntN(len(meters))]
		queue := w.lanes[r.IntN(len(w.lanes))].queue
		switch r.IntN(5) {
		case 4:
			weight := 1 + r.IntN(20)
			w.at(at, func() { w.weigh(weight%3 == 0, map[string]int{queue: weight}) })
		case 0:
			w.at(at, func() { w.stop(queue) })
			w.at(at+last, func() { w.resume(queue) })
		case 1:
			w.at(at, func() { w.pause(m, true) })
			w.at(at+last, func() { w.pause(m, false) })
		case 2:
			w.at(at, func() { w.speed(m, 1+r.Int64N(4), 1+r.Int64N(4)) })
		case 3:
			w.at(at, w.takeover)
		}
	}
	w.at(120*second, func() { w.faultRate = 0 })
	return w
}
