package scheduler

import (
	"maps"
	"sync"
	"time"

	"github.com/headgate/headgate/throttle"
)

// pacing keeps the interval between calls of this process for limits with capacity 1. The permits
// become available at that interval, but a call may leave late, for example on a busy machine or
// while it connects, and the next call would follow too closely. It is safe for concurrent use.
type pacing struct {
	mu   sync.Mutex
	next map[throttle.Need]time.Time // by limit and key, when the next call may leave at the earliest
}

const (
	// maxPaced bounds how many meters are remembered.
	maxPaced = 10_000
	// maxDelay bounds how long a call waits because the call before it was late.
	maxDelay = time.Second
)

// postpone delays the next call of the decision's meter by as much as this call left late.
func (s *pacing) postpone(d throttle.Decision, by time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	meter := throttle.Need{Limit: d.Limit, Key: d.Key}
	if next, ok := s.next[meter]; ok {
		s.next[meter] = next.Add(by)
	}
}

// startAt returns when a call that has its permits may leave. Waits of more than maxDelay are
// ignored: they result from a limit that was changed or reset, and not from late calls.
func (s *pacing) startAt(d throttle.Decision) time.Time {
	now := time.Now()
	apart := d.ResetAfter - d.BeginIn
	if d.Lease > 0 || d.Remaining > 0 || d.Cost < d.Capacity || apart <= 0 || !d.OK() {
		return now // more than one permit is given at once
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	meter, at := throttle.Need{Limit: d.Limit, Key: d.Key}, now
	if next := s.next[meter]; next.After(at) && next.Sub(at) <= maxDelay {
		at = next
	}
	if len(s.next) >= maxPaced {
		maps.DeleteFunc(s.next, func(_ throttle.Need, next time.Time) bool { return now.After(next) })
	}
	if s.next == nil || len(s.next) >= maxPaced {
		s.next = map[throttle.Need]time.Time{}
	}
	s.next[meter] = at.Add(apart)
	return at
}
