package throttle_test

import (
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/throttle"
	"github.com/headgate/headgate/throttle/throttletest"
)

// TestLocal_Concurrent hammers a limit of each kind from many goroutines. The clock lets other
// goroutines run after it was read, so a limiter that reads it too early decides by an old time.
func TestLocal_Concurrent(t *testing.T) {
	const goroutines, callsEach = 16, 300
	for _, limit := range []throttle.Limit{
		{Name: "funnel", Kind: throttle.Funnel, Rate: throttle.Rate{N: 1, Per: 50 * time.Microsecond}, Capacity: 5},
		{Name: "bucket", Kind: throttle.TokenBucket, Rate: throttle.Rate{N: 1, Per: 50 * time.Microsecond}, Capacity: 5},
		{Name: "fixed", Kind: throttle.FixedWindow, Rate: throttle.Rate{N: 5, Per: 200 * time.Microsecond}},
		{Name: "log", Kind: throttle.SlidingLog, Rate: throttle.Rate{N: 5, Per: 200 * time.Microsecond}},
		{Name: "window", Kind: throttle.SlidingWindow, Rate: throttle.Rate{N: 5, Per: 200 * time.Microsecond}},
		{Name: "running", Kind: throttle.Concurrency, Capacity: 5},
	} {
		t.Run(limit.Name, func(t *testing.T) {
			l := throttle.NewLocal(throttle.Options{Clock: func() time.Time {
				now := time.Now()
				runtime.Gosched()
				return now
			}})
			must(t, l.Define(t.Context(), limit))
			var mu sync.Mutex
			var history []throttletest.Admission
			call := func() {
				need := throttle.Need{Limit: limit.Name, Key: "k"}
				d, err := l.AllowAll(t.Context(), need)
				if err != nil || !d.OK() {
					return
				}
				a := throttletest.Admission{At: d.At.UnixMicro(), Cost: 1}
				if d.Holder != "" {
					runtime.Gosched()
					a.Until = time.Now().UnixMicro() // the permit is held at least until then
					_ = l.Free(t.Context(), d.Holder, need)
				}
				mu.Lock()
				defer mu.Unlock()
				history = append(history, a)
			}
			var all sync.WaitGroup
			for range goroutines {
				all.Go(func() {
					for range callsEach {
						call()
					}
				})
			}
			all.Wait()
			if len(history) < limit.Capacity {
				t.Errorf("%d of %d calls were allowed", len(history), goroutines*callsEach)
			}
			if err := throttletest.Check(limit, history); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestLocal_ClockPanics: a clock that panics once leaves the limiter usable.
func TestLocal_ClockPanics(t *testing.T) {
	panics := false
	l := throttle.NewLocal(throttle.Options{Clock: func() time.Time {
		if panics {
			panic("no clock")
		}
		return noon
	}})
	must(t, l.Define(t.Context(), perMinute("l", 1)))
	panics = true
	func() {
		defer func() { expect(t, "the panic", recover(), any("no clock")) }()
		_, _ = l.Allow(t.Context(), "l", "k")
	}()
	panics = false
	d, err := l.Allow(t.Context(), "l", "k")
	must(t, err)
	expect(t, "the next call", d.Outcome, allowed)
}
