package scheduler

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/throttle"
)

// simCaller takes permits of a meter without a queue, as often as it gets them.
type simCaller struct {
	limiter *throttle.Limiter
	need    throttle.Need // at most
	every   time.Duration
	settles bool // what it takes it gives back, mostly all, before it would have come back
	rand    *rand.Rand
}

// startCallers has one or two take permits beside the lanes until they are told to stop.
func (w *sim) startCallers() (stop func()) {
	var all sync.WaitGroup
	over := make(chan struct{})
	for i := range between(w.rand, 1, 2) {
		rdb := redistest.MiniClient(w.t, w.limiter)
		rdb.AddHook(w.clock)
		rdb.AddHook(&w.wires)
		l := w.lanes[w.rand.IntN(len(w.lanes))]
		c := &simCaller{
			limiter: throttle.New(rdb, throttle.Options{}), need: l.parsed[w.rand.IntN(len(l.parsed))],
			every: milliseconds(max(5, between(w.rand, 5, 300)/between(w.rand, 1, 10))), rand: rand.New(rand.NewPCG(w.seed, uint64(100+i))),
		}
		limit := w.defined(c.need.Limit)
		c.need.Cost = between(c.rand, 1, min(3, capacityOf(limit)))
		if c.settles = c.rand.IntN(2) == 0 && limit.Kind != throttle.Concurrency; c.settles {
			c.need.Cost, c.every = capacityOf(limit)/3+1, milliseconds(between(c.rand, 5, 20))
			c.need.Key = []string{c.need.Key, "callers"}[c.rand.IntN(2)]
		}
		w.direct = append(w.direct, c)
		all.Go(func() {
			for {
				select {
				case <-over:
					return
				case <-time.After(c.every):
					w.call(c)
				}
			}
		})
	}
	all.Go(func() { w.throttle(over) })
	return sync.OnceFunc(func() { close(over); all.Wait() })
}

// call is one call of a caller.
func (w *sim) call(c *simCaller) {
	need := c.need
	if c.settles {
		need.Cost = between(c.rand, 1, need.Cost)
	}
	d, err := c.limiter.AllowAll(w.t.Context(), need)
	if err != nil || !d.OK() {
		return
	}
	w.mu.Lock()
	w.history.Note(w.now(), "", "a caller takes %d of %s|%s", need.Cost, need.Limit, need.Key)
	a := w.admit(need, d, "")
	w.mu.Unlock()
	switch {
	case c.settles:
		limit, cost := w.defined(need.Limit), max(0, c.rand.IntN(4*need.Cost)-3*need.Cost)
		wait := time.Duration(c.rand.Float64() * float64(limit.Rate.Per) * float64(capacityOf(limit)) / float64(limit.Rate.N))
		w.handlers.Go(func() {
			time.Sleep(wait)
			w.mu.Lock()
			if a.at.Before(w.flushed) { // a replica that has not heard of it would give it back all the same
				w.mu.Unlock()
				return
			}
			w.history.Note(w.now(), "", "a caller gives back %d of %d of %s|%s", need.Cost-cost, need.Cost, need.Limit, need.Key)
			a.cost = cost
			w.mu.Unlock()
			_ = c.limiter.Settle(context.WithoutCancel(w.t.Context()), d, need.Limit, need.Key, cost)
		})
	case d.Lease > 0:
		time.Sleep(c.every)
		w.freed(d.Holder)
		_ = c.limiter.Free(w.t.Context(), d.Holder, need)
	}
}

// throttle takes permits of a limit that is given with the call, whose numbers change. An
// in-process limiter says what is right, as long as the limiter has its data, answers at
// once and by the same clock.
func (w *sim) throttle(over chan struct{}) {
	rdb := redistest.MiniClient(w.t, w.limiter)
	rdb.AddHook(w.clock)
	limiter, local := throttle.New(rdb, throttle.Options{}), throttle.NewLocal(throttle.Options{})
	r := rand.New(rand.NewPCG(w.seed, 99))
	burst, count, period := 0, 0, time.Duration(0)
	for {
		select {
		case <-over:
			return
		case <-time.After(milliseconds(between(r, 10, 2000))):
		}
		if count == 0 || r.IntN(5) == 0 {
			burst, count, period = between(r, 0, 20), between(r, 1, 20), time.Duration(between(r, 1, 60))*time.Second
		}
		n := r.IntN(4)
		want, _ := local.Throttle(w.t.Context(), "cell", burst, count, period, n)
		got, err := limiter.Throttle(w.t.Context(), "cell", burst, count, period, n)
		if !w.sameThrottle(want, got, err) {
			return
		}
	}
}

// sameThrottle judges an answer, and reports whether the next one can be judged.
func (w *sim) sameThrottle(want, got throttle.Decision, err error) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.oneClock() || w.unheard() {
		return false
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		w.breaks(nil, w.now(), w.now(), "a limit given with the call: %+v, %v; want %+v", got, err, want)
	}
	return true
}

func (c *simCaller) String() string {
	return fmt.Sprintf("takes %d of %s|%s each %s", c.need.Cost, c.need.Limit, c.need.Key, c.every)
}
