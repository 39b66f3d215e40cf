package scheduler

import (
	"maps"
	"sync"
	"time"

	"github.com/headgate/headgate/throttle"
)

// spacing keeps calls of this process apart where a meter gives one at a time. Their permits
// are, but a call leaves some time after its permit was taken, as on a busy machine or while
// it connects, and the next one may leave at once. It is safe for concurrent use.
type spacing struct {
	mu   sync.Mutex
	next map[throttle.Need]time.Time // by limit and key, from when on another call may leave
}

const (
	// mostSpaced bounds the meters that are remembered.
	mostSpaced = 10_000
	// mostLate is for how long a call waits at most for one that was late.
	mostLate = time.Second
)

// postpone has the next call leave later, for one leaves later than it was to.
func (s *spacing) postpone(d throttle.Decision, by time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	meter := throttle.Need{Limit: d.Limit, Key: d.Key}
	if next, ok := s.next[meter]; ok {
		s.next[meter] = next.Add(by)
	}
}

// leave is when a call leaves that has its permits. A long wait is not for one that was
// late: the limit was changed or reset.
func (s *spacing) leave(d throttle.Decision) time.Time {
	now := time.Now()
	apart := d.ResetAfter - d.BeginIn
	if d.Lease > 0 || d.Remaining > 0 || d.Cost < d.Capacity || apart <= 0 || !d.OK() {
		return now // it has not taken all that the meter gives at once
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	meter, at := throttle.Need{Limit: d.Limit, Key: d.Key}, now
	if next := s.next[meter]; next.After(at) && next.Sub(at) <= mostLate {
		at = next
	}
	if len(s.next) >= mostSpaced {
		maps.DeleteFunc(s.next, func(_ throttle.Need, next time.Time) bool { return now.After(next) })
	}
	if s.next == nil || len(s.next) >= mostSpaced {
		s.next = map[throttle.Need]time.Time{}
	}
	s.next[meter] = at.Add(apart)
	return at
}
