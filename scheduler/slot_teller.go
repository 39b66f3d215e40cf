package scheduler

import (
	"slices"
	"sync"
	"time"
)

// slotTeller says how many worker slots of a server are free, while the leader asks for that:
// a queue whose workers are busy then gets no more permits than they can use. A slot is free if
// the server has found its queues empty: else the next job of a queue takes it. The server
// says so when it is asked, when its queues are empty, and when a job has taken the last slot.
// It is safe for concurrent use.
type slotTeller struct {
	queues []string
	free   func() int
	tell   func(free int, every time.Duration)

	mu      sync.Mutex
	waiting bool      // the server has found its queues empty, and has taken no job since
	until   time.Time // when the leader does not listen any more
	since   time.Time // from when on jobs are counted
	taken   int
	said    int // the free slots of the last word
	telling bool
	again   bool // there is more to say than what is being told
}

const (
	// slotsWantedFor is how long after it has asked the leader listens.
	slotsWantedFor = 3 * time.Second
	// slotsCountedFor is how long jobs are counted before what was counted weighs half.
	slotsCountedFor = time.Minute
)

// wanted hears that the leader asks for the slots of some queues.
func (s *slotTeller) wanted(queues []string) {
	if !slices.ContainsFunc(queues, func(queue string) bool { return slices.Contains(s.queues, queue) }) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if now.After(s.until) {
		s.since, s.taken = now, 0
	}
	if counted := now.Sub(s.since); counted > slotsCountedFor {
		s.since, s.taken = now.Add(-counted/2), s.taken/2
	}
	s.until = now.Add(slotsWantedFor)
	s.say()
}

// took hears that a job was taken.
func (s *slotTeller) took() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = false
	s.taken++
	if s.said > 0 && s.free() == 0 {
		s.say()
	}
}

// idle hears that the queues are empty.
func (s *slotTeller) idle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = true
	s.say()
}

// say tells the leader, one word after the other: only the last counts.
func (s *slotTeller) say() {
	if time.Now().After(s.until) {
		return
	}
	if s.again = s.telling; !s.telling {
		s.telling = true
		free, every := s.now()
		go s.sayAll(free, every)
	}
}

func (s *slotTeller) sayAll(free int, every time.Duration) {
	for again := true; again; {
		s.tell(free, every)
		s.mu.Lock()
		again, s.again = s.again, false
		s.telling = again
		if again {
			free, every = s.now()
		}
		s.mu.Unlock()
	}
}

// now is how many slots are free, and how long it takes on average until one more is.
func (s *slotTeller) now() (free int, every time.Duration) {
	if s.waiting {
		free = s.free()
	}
	s.said = free
	return free, time.Since(s.since) / time.Duration(s.taken+1)
}

// idleSlots is how many slots are free for jobs.
func (s *Server) idleSlots() int {
	if s.markers.stopped.Err() != nil {
		return 0
	}
	return max(0, s.redis.prefetcher.slots-s.inFlight.busy())
}
