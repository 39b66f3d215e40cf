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
	all.Go(func() { w.throttle(over) })
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

// throttle takes permits of a limit that is given with the call, whose numbers change. An
// in-process limiter says what is right, as long as the limiter has its data, answers at
// once and by the same clock.
func (w *sim) throttle(over chan struct{}) {
	rdb := redistest.MiniClient(w.t, w.limiter)
	rdb.AddHook(w.clock)
	limiter, local := throttle.New(rdb, throttle.RedisOptions{}), &throttle.Local{}
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
func (w *sim) sameThrottle(want, got throttle.Cell, err error) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.oneClock() || w.unheard() {
		return false
	}
	if err != nil || got != want {
		w.breaks(nil, w.now(), w.now(), "a limit given with the call: %+v, %v; want %+v", got, err, want)
	}
	return true
}

func (c *simCaller) String() string {
	return fmt.Sprintf("takes %d of %s|%s each %s", c.need.Cost, c.need.Limit, c.need.Key, c.every)
}
