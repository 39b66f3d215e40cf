package fairqueue

import (
	"flag"
	"fmt"
	"slices"
	"testing"
)

var seeds = flag.Int("seeds", 100, "how many random topologies of each kind are simulated")

// simulation is a topology with what must hold in it.
type scenario struct {
	name  string
	build topology
	until int64
	// rounds is how many full rounds a lane may wait, median what half of the
	// topologies keep; ends reports that all is done before until, shares that each
	// lane has 0.8 of an equal share.
	rounds, median float64
	ends, shares   bool
	also           func(*simulation) // judges what else must hold
	// of that many seeds one is simulated.
	of int
}

// run simulates one seed without some rules, and reports which promise broke.
func (s scenario) run(seed uint64, off rule, tell bool) *simulation {
	w := s.build(seed)
	w.core.off = off
	w.history.Verbose = tell
	w.run(s.until * second)
	if w.broken == "" && s.rounds > 0 {
		w.judge(s.rounds)
	}
	if s.shares {
		w.judgeShares()
	}
	if w.broken == "" && s.also != nil {
		s.also(w)
	}
	if left := w.left(); w.broken == "" && s.ends && left != "" {
		w.broken = "when all should be done: " + left
	}
	return w
}

// seeds is how many seeds are simulated of n.
func (s scenario) seeds(n int) uint64 { return uint64(max(1, n/s.of)) }

// story runs a seed again and shows what led to the broken rule.
func (s scenario) story(seed uint64) string {
	w := s.run(seed, 0, true)
	return fmt.Sprintf("seed %d: %s\n%s%s", seed, w.broken, w.scene(), w.history.Story(0, w.now, 80))
}

var scenarios = []scenario{
	{name: "shares", build: sharing, until: 60, shares: true, of: 20},
	{name: "a stopped queue", build: stoppedQueue, until: 60, rounds: 12, of: 20},
	{name: "pairs", build: pairs, until: 600, also: (*simulation).judgePairs, of: 5},
	{name: "weights", build: weighted, until: 60, also: (*simulation).judgeWeights, of: 20},
	{name: "strict queues", build: strict, until: 60, of: 25},
	{name: "newcomers", build: comers, until: 20, also: (*simulation).judgeComers, of: 50},
	{name: "faults", build: faulty, until: 1_000_000, ends: true, of: 1},
	{name: "hosts", build: hosts, until: 60, rounds: 4, median: 2.5, of: 20},
	{name: "overlapping limits", build: overlapping, until: 60, rounds: 12, median: 1.5, of: 1},
	{name: "limits of all kinds", build: mixed, until: 60, rounds: 12, median: 1.3, of: 1},
}

func TestSimulations(t *testing.T) {
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			var rounds []float64
			var sum figures
			for seed := range s.seeds(*seeds) {
				w := s.run(seed, 0, false)
				if w.broken != "" {
					t.Fatal(s.story(seed))
				}
				if worst := 0.0; s.rounds > 0 {
					_, worst = w.worst()
					rounds = append(rounds, worst)
				}
				sum.add(w.figures)
			}
			slices.Sort(rounds)
			t.Logf("%d topologies, %s", s.seeds(*seeds), sum)
			if s.rounds == 0 {
				return
			}
			worst, median := rounds[len(rounds)-1], rounds[len(rounds)/2]
			t.Logf("worst wait %.2f rounds, median of the worst %.2f", worst, median)
			if s.median > 0 && median > s.median {
				t.Errorf("the median is %.2f rounds, want at most %.1f", median, s.median)
			}
		})
	}
}
