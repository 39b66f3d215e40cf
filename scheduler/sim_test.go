package scheduler

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

var (
	seeds = flag.Int("seeds", 8, "how many random worlds are simulated")
	first = flag.Uint64("first", 0, "the first of their seeds")
	every = flag.Bool("every", false, "go on after a world that fails, and tell of each in a line")
	with  = flag.String("with", "", "what worlds must be made of to be simulated, by commas")
)

// TestSimulation is the second floor of the proof: the real scripts and real
// asynq servers, in virtual time, with random limits, lanes, processes and
// troubles. A seed that fails prints its history.
func TestSimulation(t *testing.T) {
	slow(t)
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
	t.Logf("%s", worlds.sum)
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

// seed returns the next that is to be simulated.
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

// count adds what happened in a world, and tells what has in each hundred of them.
func (s *simWorlds) count(t *testing.T, w *sim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.count(&s.sum)
	if s.sum.worlds%100 == 0 {
		t.Logf("%d of %d worlds, %s", s.sum.worlds, *seeds, s.sum.line())
	}
}

// simFigures are what simulations count.
type simFigures struct {
	worlds              int
	jobs, denials, late int
	denied              map[int]int    // times → jobs that were denied so often
	events              map[string]int // by their kind
	rounds              []float64      // worst waits, of worlds in which nothing happened
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
		if !job.ended.IsZero() {
			f.late++
		}
	}
	for _, e := range w.events {
		f.events[e.kind]++
	}
	if len(w.events) == 0 {
		f.rounds = append(f.rounds, w.worst)
	}
}

// line is what a long run tells of on its way.
func (f simFigures) line() string {
	events, worst := 0, 0.0
	for _, times := range f.events {
		events += times
	}
	for _, rounds := range f.rounds {
		worst = max(worst, rounds)
	}
	return fmt.Sprintf("%d jobs, %.3f denials a job, most %d, %d events; where none was the worst wait was %.2f rounds",
		f.jobs, float64(f.denials)/float64(f.jobs), slices.Max(slices.Collect(maps.Keys(f.denied))), events, worst)
}

func (f simFigures) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "%d worlds, %d jobs, %.3f denials a job, %d too late", f.worlds, f.jobs, float64(f.denials)/float64(f.jobs), f.late)
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

func microseconds(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

func milliseconds(n int) time.Duration { return time.Duration(n) * time.Millisecond }
