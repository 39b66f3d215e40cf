package scheduler

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"strings"
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
	// A Lua machine for each call leaves much to collect.
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	var sum simFigures
	for seed := *first; seed < *first+uint64(*seeds) && !t.Failed(); seed++ {
		synctest.Test(t, func(t *testing.T) {
			w := newSim(t, seed)
			w.play()
			w.judge()
			if len(w.broken) > 0 {
				t.Errorf("seed %d:\n%s", seed, w.story())
			}
			w.count(&sum)
		})
	}
	t.Logf("%s", sum)
}

// simFigures are what simulations count.
type simFigures struct {
	worlds, jobs, denials int
	denied                map[int]int    // times → jobs that were denied so often
	events                map[string]int // by their kind
	rounds                []float64      // worst waits, of worlds in which nothing happened
}

// count adds what happened in a world.
func (w *sim) count(f *simFigures) {
	if f.denied == nil {
		f.denied, f.events = map[int]int{}, map[string]int{}
	}
	f.worlds++
	f.jobs += len(w.jobs)
	for _, job := range w.jobs {
		f.denials += job.denials
		f.denied[job.denials]++
	}
	for _, e := range w.events {
		f.events[e.kind]++
	}
	if len(w.events) == 0 {
		f.rounds = append(f.rounds, w.worst)
	}
}

func (f simFigures) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "%d worlds, %d jobs, %.3f denials a job", f.worlds, f.jobs, float64(f.denials)/float64(f.jobs))
	for _, times := range slices.Sorted(maps.Keys(f.denied)) {
		fmt.Fprintf(&s, "\n%8d jobs denied %d times", f.denied[times], times)
	}
	for _, kind := range slices.Sorted(maps.Keys(f.events)) {
		fmt.Fprintf(&s, "\n%8d %s", f.events[kind], kind)
	}
	if slices.Sort(f.rounds); len(f.rounds) > 0 {
		fmt.Fprintf(&s, "\nwhere nothing happened the worst wait was %.2f rounds; the median of the worst, %.2f",
			f.rounds[len(f.rounds)-1], f.rounds[len(f.rounds)/2])
	}
	return s.String()
}

// between is a random number from one to another, both included.
func between(r *rand.Rand, least, most int) int { return least + r.IntN(most-least+1) }

func milliseconds(n int) time.Duration { return time.Duration(n) * time.Millisecond }
