package throttle

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"
)

// coalescer sends calls that are made while others are under way together with the next ones. So a
// busy process asks Redis in few round trips, and a single call waits for no other. It is safe for
// concurrent use.
type coalescer[T any] struct {
	// send sends some calls and stores the answer of each in the call. Its context has the values
	// of the first call's context, and does not end.
	send func(ctx context.Context, calls []*T)
	// undo gives back what calls took whose callers had given up before the answer came.
	undo func(ctx context.Context, calls []*T)

	mu      sync.Mutex
	waiting []*pending[T]
	sentAt  time.Time // when calls were sent last
	senders int
}

// pending is a call and the caller that waits for its answer.
type pending[T any] struct {
	ctx    context.Context
	call   *T
	done   chan struct{}
	gaveUp bool // the caller has returned while the call was under way
}

const (
	// maxCoalesced bounds what Redis does at once to about a millisecond.
	maxCoalesced = 64
	// secondSender is how many waiting calls start a second sender, so that Redis works while this
	// process reads answers.
	secondSender = 8
	// maxHold is how long calls wait for those under way, in case Redis is far away or hangs.
	maxHold = 5 * time.Millisecond
)

// do returns nil once the call was sent and has its answer. If the context ends first, do returns
// its error, and the call is not sent any more, or undone when its answer comes. The caller must
// not read the call then, because a sender may still write it.
func (c *coalescer[T]) do(ctx context.Context, call *T) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	p := &pending[T]{ctx: ctx, call: call, done: make(chan struct{})}
	c.mu.Lock()
	c.waiting = append(c.waiting, p)
	if c.senders == 0 || c.senders == 1 && len(c.waiting) >= secondSender || time.Since(c.sentAt) > maxHold {
		c.senders++
		c.sentAt = time.Now()
		go c.sendAll()
	}
	c.mu.Unlock()
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-p.done:
		return nil
	default:
		p.gaveUp = true
		return ctx.Err()
	}
}

// sendAll sends waiting calls until there are none.
func (c *coalescer[T]) sendAll() {
	for {
		runtime.Gosched() // callers that are about to ask come along
		c.mu.Lock()
		c.waiting = slices.DeleteFunc(c.waiting, func(p *pending[T]) bool { return p.ctx.Err() != nil })
		n := min(len(c.waiting), maxCoalesced)
		batch := c.waiting[:n:n]
		c.waiting, c.sentAt = c.waiting[n:], time.Now()
		if n == 0 {
			c.senders--
		}
		c.mu.Unlock()
		if n == 0 {
			return
		}
		calls := make([]*T, n)
		for i, p := range batch {
			calls[i] = p.call
		}
		ctx := context.WithoutCancel(batch[0].ctx) // the contexts of the others may last longer
		c.send(ctx, calls)
		var gaveUp []*T
		c.mu.Lock()
		for _, p := range batch {
			if close(p.done); p.gaveUp {
				gaveUp = append(gaveUp, p.call)
			}
		}
		c.mu.Unlock()
		if len(gaveUp) > 0 {
			c.undo(ctx, gaveUp)
		}
	}
}
