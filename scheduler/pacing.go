package scheduler

import (
	"maps"
	"sync"
	"time"

	"github.com/headgate/headgate/throttle"
)

// pacing keeps calls of this process apart if a limit gives one permit at a time. The permits are
// apart, but a call leaves some time after its permit was taken, for example on a busy machine or
// while it connects, and the next call could leave right behind it. It is safe for concurrent use.
type pacing struct {
	mu   sync.Mutex
	next map[throttle.Need]time.Time // by limit and key, from when on another call may leave
}

const (
	// maxPaced bounds how many meters are remembered.
	maxPaced = 10_000
	// maxDelay bounds how long a call waits because the call before it was late.
	maxDelay = time.Second
)

// postpone delays the next call of the decision's meter, because this one left late.
func (s *pacing) postpone(d throttle.Decision, by time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	meter := throttle.Need{Limit: d.Limit, Key: d.Key}
	if next, ok := s.next[meter]; ok {
		s.next[meter] = next.Add(by)
	}
}

// startAt is when a call that has its permits may leave. A wait of more than maxDelay does not come
// from a late call but from a limit that was changed or reset, and is ignored.
func (s *pacing) startAt(d throttle.Decision) time.Time {
	now := time.Now()
	apart := d.ResetAfter - d.BeginIn
	if d.Lease > 0 || d.Remaining > 0 || d.Cost < d.Capacity || apart <= 0 || !d.OK() {
		return now // it has not taken all that the meter gives at once
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
