package fairqueue

import (
	"fmt"
	"math/rand/v2"
)

// anyShared is a meter of any kind that gives some hundred turns a second.
func (w *simulation) anyShared(r *rand.Rand) *simMeter {
	capacity := 1 + r.Int64N(20)
	switch r.IntN(4) {
	case 0:
		return w.meter(simMeter{name: "shared", window: second / 10, interval: second / 10 / (20 * capacity), capacity: 20 * capacity})
	case 1:
		return w.meter(simMeter{name: "shared", interval: 5000 * capacity, lease: 10 * second, capacity: capacity})
	}
	return w.rate("shared", 100+float64(r.IntN(400)), capacity)
}

// weighted is queues and keys with endless backlogs that share a limit, by weight. Some
// have several lanes, whose jobs need limits of their own too that are no narrower.
func weighted(seed uint64) *simulation {
	w, r := newTopology(seed)
	shared := w.anyShared(r)
	weights := map[string]int{}
	for i := range 1 + r.IntN(3) {
		queue := fmt.Sprint("q", i)
		weights[queue] = 1 + r.IntN(6)
		for k := range 1 + r.IntN(4) {
			key, weight := fmt.Sprint("key", k), 1+r.Int64N(10)
			for n := range 1 + r.IntN(3) {
				needs := []simNeed{{shared, 1 + r.Int64N(min(3, shared.capacity))}}
				if n > 0 {
					needs = append(needs, one(w.rate(fmt.Sprint("host", i, k, n), 2000, 400))...)
				}
				if r.IntN(5) == 0 {
					weight = 1 + r.Int64N(10)
				}
				w.enqueueAt(r.Int64N(second), w.fairLane(queue, key, weight, needs...), endless)
			}
		}
	}
	w.weigh(false, weights)
	w.at(2*second, w.count)
	return w
}

// count has turns count from now on.
func (w *simulation) count() {
	w.granted, w.full = 0, 0
	for _, l := range w.lanes {
		l.done, l.last, l.gap = 0, 0, 0
	}
}

// strict is queues of which each goes before the next: the last never ends, in the others
// bursts of jobs arrive.
func strict(seed uint64) *simulation {
	w, r := newTopology(seed)
	shared := w.anyShared(r)
	weights := map[string]int{}
	for i := range 2 + r.IntN(2) {
		queue := fmt.Sprint("q", i)
		weights[queue] = 1 + i
		for k := range 1 + r.IntN(3) {
			l := w.fairLane(queue, fmt.Sprint("key", k), 1+r.Int64N(3), simNeed{shared, 1 + r.Int64N(min(3, shared.capacity))})
			if i == 0 {
				w.enqueueAt(0, l, endless)
				continue
			}
			for range 10 {
				w.enqueueAt(r.Int64N(60*second), l, 1+r.IntN(100))
			}
		}
	}
	w.at(0, func() { w.weigh(true, weights) })
	return w
}

// judgeRank sees that no lane has a turn while a job of a higher rank waits at the same meter.
func (w *simulation) judgeRank(l *simLane) {
	for _, o := range w.lanes {
		if o.in.Strict && l.in.Strict && o.in.Turns > l.in.Turns && o.waiting > 0 && o.since < w.now && len(o.needs) == 1 && len(l.needs) == 1 &&
			o.needs[0].simMeter == l.needs[0].simMeter && o.onTheirWay(w.now) < o.capacity() && !o.in.stopped && !w.core.queue(o.queue).stopped {
			w.breaks(l, "had a turn while %s waits", o.queue)
		}
	}
}

// judgeWeights sees that queues had turns by their weights, and of each queue's its keys by
// theirs; and that no lane waited for much more than its share's time.
func (w *simulation) judgeWeights() {
	queues, keys := map[string]int{}, map[string]map[string]int{}
	lanes, strides := map[string]float64{}, map[string]float64{} // of a queue and key, and their sum
	for _, l := range w.lanes {
		if keys[l.queue] == nil {
			keys[l.queue] = map[string]int{}
		}
		queues[l.queue] += l.done
		keys[l.queue][l.key] += l.done
		lanes[l.queue+l.key]++
		strides[l.queue+l.key] += 1 / float64(l.weight)
	}
	weightOf := func(queue, key string) float64 { return lanes[queue+key] / strides[queue+key] } // where they differ, the mean of what turns cost
	all, sum := 0, 0.0
	for queue, done := range queues {
		all += done
		sum += float64(w.queues[queue].Turns)
	}
	share := map[string]float64{}
	for queue, done := range queues {
		share[queue] = float64(w.queues[queue].Turns) / sum
		w.judgeShare(queue, done, float64(all)*share[queue])
		of := 0.0
		for key := range keys[queue] {
			of += weightOf(queue, key)
		}
		for key, had := range keys[queue] {
			share[queue+key] = weightOf(queue, key) / of
			w.judgeShare(queue+" "+key, had, float64(done)*share[queue+key])
		}
	}
	for _, l := range w.lanes {
		its := lanes[l.queue+l.key] / (share[l.queue] * share[l.queue+l.key])
		if most := 2*its + float64(len(w.lanes)); float64(l.gap) > most {
			w.breaks(l, "waited while others had %d turns; its share is one in %.1f", l.gap, its)
		}
	}
}

// judgeShare leaves a twentieth to chance, and turns that go to others as a lane is full.
func (w *simulation) judgeShare(whose string, had int, share float64) {
	if off, most := float64(had)-share, 0.05*share+2+float64(w.full); off > most || off < -most {
		w.breaks(&simLane{name: whose}, "had %d turns, its share is %.1f", had, share)
	}
}

// comers is a key with an endless backlog, and new ones with a job each, more of them than
// the limit bears; and one that has its next job just when the last ran.
func comers(seed uint64) *simulation {
	w, r := newTopology(seed)
	shared := w.rate("shared", 20, 1+r.Int64N(10))
	old := w.fairLane("q", "old", 1+r.Int64N(3), one(shared)...)
	w.enqueueAt(0, old, endless)
	again := w.fairLane("q", "again", 1, one(shared)...)
	w.enqueueAt(second, again, 1)
	seen := 0
	for at := int64(0); at < 20*second; at += second / 40 {
		w.at(at, func() {
			w.enqueue(w.fairLane("q", fmt.Sprint("new", at), 1, one(shared)...), 1)
			if again.done > seen {
				seen = again.done
				w.enqueue(again, 1)
			}
		})
	}
	return w
}

// judgeComers sees that each lane that waits has a turn in each round, however many arrive: as twice
// as many arrive as have turns, each round is twice as long as the one before.
func (w *simulation) judgeComers() {
	old, again := w.lanes[0], w.lanes[1]
	if old.done < 6 {
		w.breaks(old, "had %d turns, and %d lanes have arrived", old.done, len(w.lanes))
	}
	if again.done > old.done+1 {
		w.breaks(again, "had %d turns, one that always waits and weighs %d had %d", again.done, old.weight, old.done)
	}
}
