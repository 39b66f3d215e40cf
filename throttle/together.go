package throttle

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"
)

// together has calls of one kind that are made while others are under way go with the
// next: a process that asks Redis often asks in few round trips, and one that asks
// seldom waits for nobody. It is safe for concurrent use.
type together[T any] struct {
	// send sends some calls, each of which it answers in place. Its context has the values
	// of the first call's, and does not end.
	send func(ctx context.Context, calls []*T)
	// undo gives back what calls took whose callers had given up before the answer came.
	undo func(ctx context.Context, calls []*T)

	mu      sync.Mutex
	waiting []*waiter[T]
	began   time.Time // when the last ones went
	senders int
	flights []*flight[T] // what was sent, from the first that has no answer on
	gone    []*T         // calls to be undone, in the order in which they were sent
	undoing bool
}

// flight is calls that were sent together.
type flight[T any] struct {
	ones     []*waiter[T]
	answered bool
}

// waiter is a call, and the caller that waits for its answer.
type waiter[T any] struct {
	ctx    context.Context
	call   *T
	done   chan struct{}
	gaveUp bool // the caller has returned while the call was under way
}

const (
	// mostTogether bounds what Redis does at once to about a millisecond.
	mostTogether = 64
	// enough calls that wait go at once, beside those under way: Redis works while this
	// process reads answers and asks.
	enough = 8
	// patient is how long calls wait for those under way: where Redis is far off, or
	// hangs, they go at once.
	patient = 5 * time.Millisecond
)

// do returns nil once the call was sent and has its answer. If the context ends before
// that, do returns the context's error: the call is not sent any more, or it is undone when its
// answer comes. The caller must not read the call then, because a sender may write it.
func (c *together[T]) do(ctx context.Context, call *T) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	one := &waiter[T]{ctx: ctx, call: call, done: make(chan struct{})}
	c.mu.Lock()
	c.waiting = append(c.waiting, one)
	if c.senders == 0 || c.senders == 1 && len(c.waiting) >= enough || time.Since(c.began) > patient {
		c.senders++
		c.began = time.Now()
		go c.sendAll()
	}
	c.mu.Unlock()
	select {
	case <-one.done:
		return nil
	case <-ctx.Done():
		return c.giveUp(one)
	}
}

// giveUp takes a call back, unless it has its answer by now.
func (c *together[T]) giveUp(one *waiter[T]) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-one.done:
		return nil
	default:
	}
	one.gaveUp = true
	return one.ctx.Err()
}

// sendAll sends what waits until nothing does. Who is about to ask may come along.
func (c *together[T]) sendAll() {
	for {
		runtime.Gosched()
		f := c.next()
		if f == nil {
			return
		}
		calls := make([]*T, len(f.ones))
		for i, one := range f.ones {
			calls[i] = one.call
		}
		c.send(context.WithoutCancel(f.ones[0].ctx), calls) // the others' contexts may last longer
		c.answer(f)
	}
}

// answer wakes the callers of calls that were sent. It has the calls of those that gave up
// undone, once all that was sent before has its answers.
func (c *together[T]) answer(f *flight[T]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f.answered = true
	for _, one := range f.ones {
		if !one.gaveUp {
			close(one.done)
		}
	}
	for ; len(c.flights) > 0 && c.flights[0].answered; c.flights = c.flights[1:] {
		for _, one := range c.flights[0].ones {
			if one.gaveUp {
				c.gone = append(c.gone, one.call)
			}
		}
	}
	if len(c.gone) > 0 && !c.undoing {
		c.undoing = true
		go c.undoAll(context.WithoutCancel(f.ones[0].ctx))
	}
}

// undoAll undoes calls until none is left, the first first: what was given back of a later call
// would count as taken by others since.
func (c *together[T]) undoAll(ctx context.Context) {
	for {
		c.mu.Lock()
		calls := c.gone
		c.gone, c.undoing = nil, len(calls) > 0
		c.mu.Unlock()
		if len(calls) == 0 {
			return
		}
		c.undo(ctx, calls)
	}
}

// next takes calls that wait; the sender ends if there are none. It drops calls whose context
// is over.
func (c *together[T]) next() *flight[T] {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = slices.DeleteFunc(c.waiting, func(one *waiter[T]) bool { return one.ctx.Err() != nil })
	n := min(len(c.waiting), mostTogether)
	f := &flight[T]{ones: c.waiting[:n:n]}
	c.waiting = c.waiting[n:]
	c.began = time.Now()
	if n == 0 {
		c.senders--
		return nil
	}
	c.flights = append(c.flights, f)
	return f
}
