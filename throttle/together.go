package throttle

import (
	"context"
	"runtime"
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

	mu      sync.Mutex
	waiting []*waiter[T]
	began   time.Time // when the last ones went
	senders int
}

// waiter is a call, and whoever made it.
type waiter[T any] struct {
	ctx  context.Context
	call *T
	done chan struct{}
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

// do returns when the call was sent and has its answer, or when the context is over:
// then nobody may look at the call any more.
func (c *together[T]) do(ctx context.Context, call *T) error {
	one := &waiter[T]{ctx, call, make(chan struct{})}
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
		return ctx.Err()
	}
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
		c.send(context.WithoutCancel(ones[0].ctx), calls) // the others' contexts may last longer
		for _, one := range ones {
			close(one.done)
		}
	}
}

// next takes calls that wait; the sender ends if there are none.
func (c *together[T]) next() []*waiter[T] {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := min(len(c.waiting), mostTogether)
	ones := c.waiting[:n:n]
	c.waiting = c.waiting[n:]
	if n == 0 {
		c.senders--
	}
	c.began = time.Now()
	return ones
}
