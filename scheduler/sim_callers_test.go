package scheduler

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/throttle"
)

// simCaller takes permits of a meter without a queue, as often as it gets them.
type simCaller struct {
	limiter *throttle.Redis
	need    throttle.Need
	every   time.Duration
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
			limiter: throttle.New(rdb, throttle.RedisOptions{}), need: l.parsed[w.rand.IntN(len(l.parsed))],
			every: milliseconds(between(w.rand, 5, 300)), rand: rand.New(rand.NewPCG(w.seed, uint64(100+i))),
		}
		c.need.Cost = between(c.rand, 1, min(3, capacityOf(w.defined(c.need.Limit))))
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
	return sync.OnceFunc(func() { close(over); all.Wait() })
}

// call is one call of a caller.
func (w *sim) call(c *simCaller) {
	d, err := c.limiter.AllowAll(w.t.Context(), c.need)
	if err != nil || !d.OK() {
		return
	}
	w.mu.Lock()
	w.history.Note(w.now(), "", "a caller takes %d of %s|%s", c.need.Cost, c.need.Limit, c.need.Key)
	w.admit(c.need, d, "")
	w.mu.Unlock()
	if d.Lease > 0 {
		time.Sleep(c.every)
		w.freed(d.Holder)
		_ = c.limiter.Free(w.t.Context(), d.Holder, c.need)
	}
}

func (c *simCaller) String() string {
	return fmt.Sprintf("takes %d of %s|%s each %s", c.need.Cost, c.need.Limit, c.need.Key, c.every)
}
