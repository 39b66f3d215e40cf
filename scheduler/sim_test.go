package scheduler

import (
	"flag"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

var (
	seeds = flag.Int("seeds", 25, "how many random worlds are simulated")
	first = flag.Uint64("first", 0, "the first of their seeds")
)

// TestSimulation is the second floor of the proof: the real scripts and real
// asynq servers, in virtual time, with random limits, lanes, processes and
// troubles. A seed that fails prints its history.
func TestSimulation(t *testing.T) {
	var sum simFigures
	var rounds []float64
	for seed := *first; seed < *first+uint64(*seeds); seed++ {
		synctest.Test(t, func(t *testing.T) {
			w := newSim(t, seed)
			w.play()
			w.judge()
			if len(w.broken) > 0 {
				t.Errorf("seed %d:\n%s", seed, w.story())
			}
			sum.add(w.simFigures)
			if len(w.events) == 0 {
				rounds = append(rounds, w.worst)
			}
		})
		if t.Failed() {
			return
		}
	}
	t.Logf("%d worlds, %d jobs, %.3f denials a job, most %d; %d events", *seeds, sum.jobs, float64(sum.denials)/float64(sum.jobs), sum.most, sum.troubles)
	if slices.Sort(rounds); len(rounds) > 0 {
		t.Logf("worst wait where nothing happened: %.2f rounds, median of the worst %.2f", rounds[len(rounds)-1], rounds[len(rounds)/2])
	}
}

// simFigures are what a simulation counts.
type simFigures struct{ jobs, denials, most, troubles int }

func (f *simFigures) add(o simFigures) {
	f.jobs, f.denials, f.most, f.troubles = f.jobs+o.jobs, f.denials+o.denials, max(f.most, o.most), f.troubles+o.troubles
}

// between is a random number from one to another, both included.
func between(r *rand.Rand, least, most int) int { return least + r.IntN(most-least+1) }

func milliseconds(n int) time.Duration { return time.Duration(n) * time.Millisecond }
