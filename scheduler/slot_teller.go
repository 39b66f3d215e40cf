package scheduler

import (
	"slices"
	"sync"
	"time"
)

// slotTeller reports how many worker slots of a server are free, while the leader asks for that: a
// queue whose workers are busy gets no more permits than they can use. Slots are free only if the
// server has found its queues empty, because otherwise the next job of a queue takes them. The
// server reports when the leader asks, when its queues are empty, and when a job has taken the last
// slot. It is safe for concurrent use.
type slotTeller struct {
	queues []string
	free   func() int
	tell   func(free int, every time.Duration)

	mu      sync.Mutex
	waiting bool      // the server has found its queues empty, and has fetched no job since
	until   time.Time // when the leader stops listening
	since   time.Time // when the count of fetched jobs began
	fetched int
	said    int  // the free slots of the last report
	telling bool // whether tellAll runs
	due     bool // whether there is something to report
}

const (
	// slotsWantedFor is how long after it has asked the leader listens.
	slotsWantedFor = 3 * time.Second
	// slotsCountedFor is how long jobs are counted before what was counted weighs half.
	slotsCountedFor = time.Minute
)

// wanted is called when the leader asks for the slots of some queues.
func (s *slotTeller) wanted(queues []string) {
	if !slices.ContainsFunc(queues, func(queue string) bool { return slices.Contains(s.queues, queue) }) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if now.After(s.until) {
		s.since, s.fetched = now, 0
	}
	if counted := now.Sub(s.since); counted > slotsCountedFor {
		s.since, s.fetched = now.Add(-counted/2), s.fetched/2
	}
	s.until = now.Add(slotsWantedFor)
	s.report()
}

// took is called when a job was fetched.
func (s *slotTeller) took() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = false
	s.fetched++
	if s.said > 0 && s.free() == 0 {
		s.report()
	}
}

// idle is called when the queues are empty.
func (s *slotTeller) idle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = true
	s.report()
}

// report tells the leader. What is to be told while a call is under way goes with the next call.
func (s *slotTeller) report() {
	if time.Now().After(s.until) {
		return
	}
	if s.due = true; !s.telling {
		s.telling = true
		go s.tellAll()
	}
}

func (s *slotTeller) tellAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.due {
		s.due, s.said = false, 0
		if s.waiting {
			s.said = s.free()
		}
		free, every := s.said, time.Since(s.since)/time.Duration(s.fetched+1)
		s.mu.Unlock()
		s.tell(free, every)
		s.mu.Lock()
	}
	s.telling = false
}

// idleSlots is how many slots are free for jobs.
func (s *Server) idleSlots() int {
	if s.markers.stopped.Err() != nil {
		return 0
	}
	return max(0, s.redis.prefetcher.slots-s.inFlight.busy())
}
