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
		ones := c.next()
		if len(ones) == 0 {
			return
		}
		calls := make([]*T, len(ones))
		for i, one := range ones {
			calls[i] = one.call
		}
		ctx := context.WithoutCancel(ones[0].ctx) // the others' contexts may last longer
		c.send(ctx, calls)
		if gone := c.answer(ones); len(gone) > 0 {
			c.undo(ctx, gone)
		}
	}
}

// answer wakes the callers of calls that were sent. It returns the calls of those that gave up.
func (c *together[T]) answer(ones []*waiter[T]) (gone []*T) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range ones {
		if close(one.done); one.gaveUp {
			gone = append(gone, one.call)
		}
	}
	return gone
}

// next takes calls that wait; the sender ends if there are none. It drops calls whose context
// is over.
func (c *together[T]) next() []*waiter[T] {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = slices.DeleteFunc(c.waiting, func(one *waiter[T]) bool { return one.ctx.Err() != nil })
	n := min(len(c.waiting), mostTogether)
	ones := c.waiting[:n:n]
	c.waiting = c.waiting[n:]
	c.began = time.Now()
	if n == 0 {
		c.senders--
	}
	return ones
}
