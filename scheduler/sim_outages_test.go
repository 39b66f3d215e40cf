package scheduler

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// hangLimiter has the limiter's Redis answer nobody for a while. What it was asked
// meanwhile it does afterwards, whoever still listens.
func (w *sim) hangLimiter() {
	wait := w.while()
	if w.rand.IntN(2) == 0 {
		wait *= 15
	}
	w.note(simEvent{kind: "limiters hung", text: fmt.Sprintf("the limiter hangs for %s", wait), lasts: wait, unheard: true, times: 2 + int(wait/time.Second)})
	open := w.hung.close()
	time.Sleep(wait)
	open()
}

// hangQueues has asynq's Redis answer nobody for a while, the same.
func (w *sim) hangQueues() {
	wait := w.while()
	if w.rand.IntN(2) == 0 {
		wait *= 15
	}
	w.note(simEvent{kind: "queues hung", text: fmt.Sprintf("asynq's Redis hangs for %s", wait), lasts: wait, unheard: true, crash: true, times: 2 + int(wait/time.Second)})
	w.mu.Lock()
	for _, p := range w.processes {
		p.since = time.Now().Add(wait)
	}
	w.mu.Unlock()
	open := w.stalled.close()
	time.Sleep(wait)
	open()
}

// hangProcess has what a process asks of any Redis wait for a while.
func (w *sim) hangProcess() {
	p := w.process()
	if p == nil {
		return
	}
	wait := 15 * w.while()
	w.note(simEvent{kind: "processes hung", text: fmt.Sprintf("process %d hangs for %s", p.index, wait), lasts: wait, unheard: true, crash: true, times: 2})
	w.mu.Lock()
	p.since = time.Now().Add(wait)
	w.mu.Unlock()
	time.AfterFunc(wait, p.hangs.close())
}

// leave has a process shut down, and another start.
func (w *sim) leave() {
	p := w.process()
	if p == nil {
		return
	}
	w.note(simEvent{kind: "processes left", text: fmt.Sprintf("process %d leaves, and another starts", p.index)})
	w.mu.Lock()
	p.leaves = true
	w.mu.Unlock()
	go p.server.Shutdown()
	w.startProcess()
}

// failOver has a replica of the limiter's Redis take over that has not heard of what
// happened last.
func (w *sim) failOver() {
	const replica = 1
	for _, key := range w.limiter.Keys() {
		w.hand.must(w.limiter.Copy(0, key, replica, key))
	}
	lag := w.while()
	for _, l := range w.lanes {
		time.Sleep(lag / time.Duration(len(w.lanes)))
		for range between(w.rand, 1, 6) {
			w.enqueue(l)
		}
	}
	time.Sleep(time.Millisecond)
	w.note(simEvent{kind: "failovers", text: fmt.Sprintf("a replica takes over that has not heard of the last %s", lag), lost: true, stays: true, unheard: true, times: 2})
	w.limiter.SwapDB(0, replica)
	w.limiter.DB(replica).FlushDB()
	w.mu.Lock()
	w.shuts, w.flushed = nil, time.Now()
	w.mu.Unlock()
	w.wires.cut()
}

// gate has those who come wait while it is closed. Its zero value is open.
type gate struct {
	mu   sync.Mutex
	shut chan struct{}
}

// close closes an open gate, and returns what opens it.
func (g *gate) close() (open func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	shut := make(chan struct{})
	before := g.shut
	g.shut = shut
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if close(shut); g.shut == shut {
			g.shut = before
		}
	}
}

func (g *gate) closed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.shut != nil
}

func (g *gate) wait(ctx context.Context) error {
	g.mu.Lock()
	shut := g.shut
	g.mu.Unlock()
	if shut == nil {
		return nil
	}
	select {
	case <-shut:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (g *gate) DialHook(next redis.DialHook) redis.DialHook { return next }

func (g *gate) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if isGreeting(cmds[0]) {
			return next(ctx, cmds)
		}
		if err := g.wait(ctx); err != nil {
			return err
		}
		return next(ctx, cmds)
	}
}

func (g *gate) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if isGreeting(cmd) {
			return next(ctx, cmd)
		}
		if err := g.wait(ctx); err != nil {
			cmd.SetErr(err)
			return err
		}
		return next(ctx, cmd)
	}
}

// wires are the connections to a Redis: a failover cuts them.
type wires struct {
	mu  sync.Mutex
	all []net.Conn
}

func (w *wires) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.all {
		_ = c.Close()
	}
	w.all = nil
}

func (w *wires) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := next(ctx, network, addr)
		if err == nil {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.all = append(w.all, c)
		}
		return c, err
	}
}

func (w *wires) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (w *wires) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
