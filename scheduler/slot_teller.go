package scheduler

import (
	"slices"
	"sync"
	"time"
)

// slotTeller reports how many worker slots of a server are free, while the leader requests that.
// The leader needs the numbers to grant a queue no more permits than its workers can use. Slots
// count as free only while the server's queues are empty, because otherwise pending jobs take them.
// The server reports when the leader requests it, when its queues become empty, and when a job
// takes the last slot. It is safe for concurrent use.
type slotTeller struct {
	queues []string
	free   func() int
	tell   func(free int, every time.Duration) // every: average time between two fetched jobs

	mu       sync.Mutex
	empty    bool      // whether the server has found its queues empty, and fetched no job since
	until    time.Time // when the leader's request ends
	since    time.Time // when the count of fetched jobs began
	fetched  int
	reported int  // the free slots of the last report
	running  bool // whether tellAll runs
	due      bool // whether a report is due
}

const (
	// slotsWantedFor is how long reports are sent after a request of the leader.
	slotsWantedFor = 3 * time.Second
	// slotsCountedFor is the longest period over which fetched jobs are counted. Then the count and
	// the period are halved, so that the average follows changes.
	slotsCountedFor = time.Minute
)

// wanted is called when the leader requests the slots of some queues.
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
	s.empty = false
	s.fetched++
	if s.reported > 0 && s.free() == 0 {
		s.report()
	}
}

// idle is called when the queues are empty.
func (s *slotTeller) idle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.empty = true
	s.report()
}

// report starts a report. If a report becomes due during a call of tell, it is sent after the call.
func (s *slotTeller) report() {
	if time.Now().After(s.until) {
		return
	}
	if s.due = true; !s.running {
		s.running = true
		go s.tellAll()
	}
}

func (s *slotTeller) tellAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.due {
		s.due, s.reported = false, 0
		if s.empty {
			s.reported = s.free()
		}
		free, every := s.reported, time.Since(s.since)/time.Duration(s.fetched+1)
		s.mu.Unlock()
		s.tell(free, every)
		s.mu.Lock()
	}
	s.running = false
}

// idleSlots returns how many slots are free for jobs.
func (s *Server) idleSlots() int {
	if s.markers.stopped.Err() != nil {
		return 0
	}
	return max(0, s.redis.prefetcher.slots-s.inFlight.busy())
}
