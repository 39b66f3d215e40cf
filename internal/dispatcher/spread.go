package dispatcher

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/headgate/headgate/internal/waitdb"
)

// Spread spreads the leadership of several scopes evenly over the processes that serve them. All
// dispatchers of a process share one Spread. Each attempt to take a lease tells who leads the scope. A
// process that leads at least two scopes fewer than another asks that one to hand a scope over. So
// the numbers of scopes that two processes lead differ by one at most in the end, and a process that
// dies needs no other rule: its scopes are taken over, and then spread.
//
// A Spread is safe for concurrent use.
type Spread struct {
	process string
	mu      sync.Mutex
	leaders map[string]string // by scope: the process that was seen to lead, or will
}

// NewSpread returns the Spread of a process.
func NewSpread() *Spread { return &Spread{process: uuid.NewString(), leaders: map[string]string{}} }

// MaxSpreadHeartbeat is the MaxHeartbeat of dispatchers with a Spread: a scope without a leader has
// one again 2.2 s after the last heartbeat.
const MaxSpreadHeartbeat = time.Second

// observe notes who leads a scope, and reports whether this process should lead it instead.
func (s *Spread) observe(scope, leader string) (wanted bool, led int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leaders[scope] = leader
	led = s.count(s.process)
	if leader == s.process || s.count(leader) < led+2 {
		return false, led
	}
	s.leaders[scope] = s.process // until the next observation
	return true, led
}

// yield reports whether this process should hand a scope over to a process that leads so many.
func (s *Spread) yield(scope, to string, led int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leaders[scope] != s.process || s.count(s.process) < led+2 {
		return false
	}
	s.leaders[scope] = to
	return true
}

func (s *Spread) count(process string) (n int) {
	for _, leader := range s.leaders {
		if leader == process {
			n++
		}
	}
	return n
}

// balance notes who leads the scope now, and asks the leader for the scope if this process leads too
// few. A lost request is repeated when the lease ends.
func (d *dispatcher) balance(ctx context.Context, l waitdb.Leadership) {
	if d.Spread == nil {
		return
	}
	if l.Held {
		l.Leader = d.process
	}
	_, scope := d.Waits.Scope()
	if wanted, led := d.Spread.observe(scope, l.Leader); wanted {
		d.limiterHealth.Note(ctx, d.Waits.RequestLead(ctx, d.process, led))
	}
}

// handOver steps down for a process that leads fewer scopes and has asked for this one.
func (d *dispatcher) handOver(ctx context.Context, to string, led int) {
	_, scope := d.Waits.Scope()
	if d.Spread != nil && d.Spread.yield(scope, to, led) {
		d.stepDown(ctx, to)
		d.heldUntil = time.Now().Add(takeoverDelay)
		d.renewAt = d.heldUntil
	}
}
