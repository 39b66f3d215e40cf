package dispatcher

import (
	"sync"
	"time"

	"github.com/google/uuid"
)

// Spread spreads the leadership of several scopes evenly over the processes that serve them. All
// dispatchers of a process share one Spread, and record in it who leads each scope. If a process
// leads at least two scopes fewer than another process, it requests one of that process's scopes.
// In the end the numbers of scopes of any two processes differ by at most one. If a process dies,
// the others take its scopes over and spread them in the same way. A Spread is safe for concurrent
// use.
type Spread struct {
	process string
	mu      sync.Mutex
	leaders map[string]string // by scope: the process that leads, or to which the lead is handed over
}

// NewSpread returns the Spread of a process.
func NewSpread() *Spread { return &Spread{process: uuid.NewString(), leaders: map[string]string{}} }

// MaxSpreadHeartbeat is the MaxHeartbeat of dispatchers with a Spread. If a leader dies, its scope
// has a new leader 1.8 s after the last heartbeat.
const MaxSpreadHeartbeat = time.Second

// observe records the leader of a scope. It reports whether this process should lead the scope
// instead. led is the number of scopes that this process leads.
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

// yield reports whether this process should hand a scope over to a process that leads led scopes.
// If so, it records that process as the leader.
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
