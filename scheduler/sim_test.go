package scheduler

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// The simulation runs the real scripts and real asynq servers in virtual time, in random worlds:
// with random limits, lanes, jobs and processes (sim_world, sim_jobs), and random faults
// (sim_faults). Judges see whether each promise held that no fault explains (sim_judges). If one
// broke, the world's story is printed (sim_story).

var (
	seeds = flag.Int("seeds", 5, "how many random worlds are simulated")
	first = flag.Uint64("first", 0, "the first of their seeds")
)

// TestSimulation simulates random worlds on all cores, until one fails.
func TestSimulation(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	gc := debug.SetGCPercent(400) // a Lua machine for each call leaves much to collect
	t.Cleanup(func() { debug.SetGCPercent(gc) })
	var begun atomic.Uint64
	var failed atomic.Bool
	for i := range *seeds {
		t.Run(fmt.Sprint("world ", i), func(t *testing.T) {
			t.Parallel()
			seed := *first + begun.Add(1) - 1 // in order, however the tests are scheduled
			if failed.Load() {
				t.Skip("another world has failed")
			}
			synctest.Test(t, func(t *testing.T) {
				t.Log("seed", seed)
				w := newSim(t, seed)
				w.play()
				w.judge()
				if len(w.broken) > 0 {
					failed.Store(true)
					t.Errorf("broken:\n%s", w.story())
				}
			})
		})
	}
}

// between is a random number from least to most, both included.
func between(r *rand.Rand, least, most int) int { return least + r.IntN(most-least+1) }

func microseconds(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

func milliseconds(n int) time.Duration { return time.Duration(n) * time.Millisecond }
