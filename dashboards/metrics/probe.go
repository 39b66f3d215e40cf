package metrics

import (
	"context"
	"errors"
	"sync"
	"time"
)

// probe asks whether Redis can be used, once at a time: a call that hangs is joined by the
// scrapes that come meanwhile, and outlasts them.
type probe struct {
	try func(context.Context) error

	mu  sync.Mutex
	now *answer // nil where nobody asks
}

// answer is there when done is closed.
type answer struct {
	done chan struct{}
	err  error
}

var errAway = errors.New("no answer in time")

func (p *probe) ask(within time.Duration) error {
	late := time.NewTimer(within)
	defer late.Stop()
	a := p.answer()
	select {
	case <-a.done:
		return a.err
	case <-late.C:
		return errAway
	}
}

func (p *probe) answer() *answer {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.now == nil {
		a := &answer{done: make(chan struct{})}
		p.now = a
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			a.err = p.try(ctx)
			p.mu.Lock()
			p.now = nil
			p.mu.Unlock()
			close(a.done)
		}()
	}
	return p.now
}

// patience is after how long Redis is asked anew.
const patience = 2 * time.Second
