package turns

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

var seeds = flag.Int("seeds", 300, "how many random topologies are simulated")

const second = 1_000_000

// topology builds random lanes on random meters.
type topology func(seed uint64) *world

// random is lanes with endless backlogs on funnels that overlap.
func random(seed uint64) *world {
	w := newWorld(seed)
	w.latency = 100
	r := rand.New(rand.NewPCG(seed, 2))
	var meters []*worldMeter
	for i := range 2 + r.IntN(5) {
		meters = append(meters, w.meter(worldMeter{
			name:     fmt.Sprintf("m%d", i),
			interval: int64(second / math.Pow(10, -0.5+2.5*r.Float64())),
			capacity: []int64{1, 1, 2, 5, 10, 50}[r.IntN(6)],
		}))
	}
	for i := range 2 + r.IntN(11) {
		var needs []worldNeed
		for _, j := range r.Perm(len(meters))[:1+r.IntN(min(3, len(meters)))] {
			cost := int64(1)
			if r.Float64() > .8 {
				cost = 1 + r.Int64N(meters[j].capacity)
			}
			needs = append(needs, worldNeed{meters[j], cost})
		}
		l := w.lane(fmt.Sprintf("q%d", i), needs...)
		w.at(r.Int64N(2*second), func() { w.enqueue(l, 1_000_000_000) })
	}
	return w
}

// rounds is a lane's worst wait in full rounds of its slowest meter: every lane
// that needs the meter once before it.
func (w *world) roundsOf(l *worldLane) float64 {
	round := int64(0)
	for _, n := range l.needs {
		sum := int64(0)
		for _, o := range w.lanes {
			for _, m := range o.needs {
				if m.worldMeter == n.worldMeter {
					sum += m.cost*m.interval + w.latency
				}
			}
		}
		round = max(round, sum)
	}
	return float64(w.history.Lane(l.name).Worst) / float64(round)
}

func (w *world) worst() (worst *worldLane, rounds float64) {
	for _, l := range w.lanes {
		if n := w.roundsOf(l); n > rounds || worst == nil {
			worst, rounds = l, n
		}
	}
	return worst, rounds
}

func TestRandomTopologies(t *testing.T) {
	var all []float64
	var turns, tries, refused, skipped int
	for seed := range uint64(*seeds) {
		w := random(seed)
		w.run(120 * second)
		l, rounds := w.worst()
		if rounds > 12 {
			w.breaks(l, "waited %.1f rounds", rounds)
		}
		if w.broken != "" {
			t.Fatalf("seed %d: %s\n%s", seed, w.broken, story(random, seed, 0))
		}
		all = append(all, rounds)
		turns += w.granted
		tries += w.granted + w.refused + w.skipped + w.full
		refused += w.refused
		skipped += w.skipped
	}
	slices.Sort(all)
	t.Logf("%d topologies, %d turns (%.2f%% refused, %.2f%% skipped): worst wait %.2f rounds, median %.2f", len(all), turns,
		100*float64(refused)/float64(tries), 100*float64(skipped)/float64(tries), all[len(all)-1], all[len(all)/2])
	if median := all[len(all)/2]; median > 1.3 {
		t.Errorf("median %.2f rounds, want at most 1.3", median)
	}
}

// story runs a seed again and tells what happened before the rule broke.
func story(build topology, seed uint64, off rule) string {
	w := build(seed)
	w.core.off = off
	w.history.Tell = true
	w.run(120 * second)
	l, rounds := w.worst()
	at := w.history.Lane(l.name).WorstAt
	if w.broken != "" {
		at = w.now
	}
	return fmt.Sprintf("%sworst %.2f rounds: %q\n%s", w.scene(), rounds, l.name, w.history.Story(at-w.history.Lane(l.name).Worst, at, 60))
}
