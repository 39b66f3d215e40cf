package throttle

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/script"
)

// coalescer collects new calls while earlier calls are under way, and sends the new calls in one
// batch. So a busy process needs few round trips to Redis. If no call is under way, a new call is
// sent at once. A coalescer is safe for concurrent use.
type coalescer[T any] struct {
	// send sends a batch, and stores the reply to each call in the call. The context ctx has the
	// values of the first call's context, and never ends.
	send func(ctx context.Context, calls []*T)
	// undo gives back the permits of calls whose callers had given up before the reply came.
	undo func(ctx context.Context, calls []*T)

	mu      sync.Mutex
	waiting []*pending[T]
	sentAt  time.Time // when the last batch was sent
	senders int       // goroutines that run sendAll
}

// pending is a call whose caller waits for the reply.
type pending[T any] struct {
	ctx    context.Context
	call   *T
	done   chan struct{}
	gaveUp bool // true if the caller has returned while the call was under way
}

const (
	// If secondSender calls wait, a second sender starts, so that Redis works while this process
	// reads replies.
	secondSender = 8
	// If the last batch was sent more than maxHold ago, a new call starts one more sender instead
	// of waiting for that batch's reply. Redis may be far away, or may hang.
	maxHold = 5 * time.Millisecond
)

// do returns nil once the call has its reply. If the context ends first, do returns the context's
// error. In that case the sender does not send the call, or undoes the call after its reply. The
// caller must not read the call after an error, because a sender may still write to it.
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
		runtime.Gosched() // lets other goroutines add their calls to the batch
		c.mu.Lock()
		c.waiting = slices.DeleteFunc(c.waiting, func(p *pending[T]) bool { return p.ctx.Err() != nil })
		n := min(len(c.waiting), script.MaxCalls)
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
		ctx := context.WithoutCancel(batch[0].ctx) // the first call's context may end before those of the other calls
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
