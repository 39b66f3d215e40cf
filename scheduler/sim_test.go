package scheduler

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// The simulation runs the real scripts and real asynq servers in virtual time, in random worlds:
// with random limits, lanes, jobs and processes (sim_world, sim_jobs), and random faults
// (sim_faults). Judges see whether each promise held that no fault explains (sim_judges). If one
// broke, the world's story is printed (sim_story).

var (
	seeds = flag.Int("seeds", 8, "how many random worlds are simulated")
	first = flag.Uint64("first", 0, "the first of their seeds")
	every = flag.Bool("every", false, "go on after a world that fails, and print each in a line")
	with  = flag.String("with", "", "what worlds must be made of to be simulated, by commas")
)

// TestSimulation simulates random worlds. A seed that fails prints its story.
func TestSimulation(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	// A Lua machine for each call leaves much to collect.
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	worlds := &simWorlds{next: *first, end: *first + uint64(*seeds)}
	t.Run("on all cores", func(t *testing.T) {
		for i := range runtime.GOMAXPROCS(0) {
			t.Run(fmt.Sprint("core ", i), func(t *testing.T) {
				t.Parallel()
				worlds.play(t)
			})
		}
	})
	t.Log(worlds.sum)
}

// simWorlds are the worlds to simulate, until one fails.
type simWorlds struct {
	mu        sync.Mutex
	next, end uint64 // seeds
	sum       simFigures
}

// play simulates one world after the other.
func (s *simWorlds) play(t *testing.T) {
	defer func() {
		if t.Failed() && !*every {
			s.stop()
		}
	}()
	for seed, ok := s.seed(); ok; seed, ok = s.seed() {
		var w *sim
		synctest.Test(t, func(t *testing.T) {
			w = newSim(t, seed)
			w.play()
			w.judge()
		})
		if len(w.broken) > 0 && *every {
			t.Errorf("seed %d (%s): %s", seed, w.simIngredients, w.line())
		} else if len(w.broken) > 0 {
			t.Errorf("seed %d:\n%s", seed, w.story())
			return
		}
		s.count(t, w)
	}
}

// seed returns the next seed to simulate.
func (s *simWorlds) seed() (seed uint64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next++
	for s.next <= s.end && !newIngredients(s.next-1).hasAll(*with) {
		s.next++
	}
	return s.next - 1, s.next <= s.end
}

func (s *simWorlds) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next = s.end
}

// count adds what happened in a world, and logs the figures of each hundred worlds.
func (s *simWorlds) count(t *testing.T, w *sim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.count(&s.sum)
	if s.sum.worlds%100 == 0 {
		t.Logf("of %d: %s", *seeds, s.sum)
	}
}

// simFigures are what simulations count.
type simFigures struct {
	worlds, jobs, denials, most, expired int
	events                               map[string]int // by their kind
	rounds                               float64        // worst wait, in worlds without events
}

// count adds what happened in a world.
func (w *sim) count(f *simFigures) {
	f.worlds++
	f.jobs += len(w.jobs)
	for _, job := range w.jobs {
		f.denials += job.denials
		f.most = max(f.most, job.denials)
		if !job.expired.IsZero() {
			f.expired++
		}
	}
	if f.events == nil {
		f.events = map[string]int{}
	}
	for _, e := range w.events {
		f.events[e.kind]++
	}
	if len(w.events) == 0 {
		f.rounds = max(f.rounds, w.worst)
	}
}

func (f simFigures) String() string {
	text := fmt.Sprintf("%d worlds, %d jobs, %.3f denials a job, most %d; %d expired; the worst wait without events was %.2f rounds; events:",
		f.worlds, f.jobs, float64(f.denials)/float64(f.jobs), f.most, f.expired, f.rounds)
	for _, kind := range slices.Sorted(maps.Keys(f.events)) {
		text += fmt.Sprintf(" %d %s,", f.events[kind], kind)
	}
	return text
}

// between is a random number from least to most, both included.
func between(r *rand.Rand, least, most int) int { return least + r.IntN(most-least+1) }

func microseconds(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

func milliseconds(n int) time.Duration { return time.Duration(n) * time.Millisecond }
