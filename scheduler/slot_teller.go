package scheduler

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
)

// slotTeller tells the leader of a scope how many worker slots of a server are free, so that a
// queue is granted no more permits than its workers can use. Slots count as free only while the
// server's queues are empty, because otherwise pending jobs take them. The server reports the
// number when the leader requests it, and when its queues become empty. It is safe for concurrent
// use.
type slotTeller struct {
	due chan struct{} // receives a value when a report is due

	mu      sync.Mutex
	empty   bool      // whether the server has found its queues empty, and fetched no job since
	until   time.Time // until when the server reports to the leader
	since   time.Time // when the count of fetched jobs began
	fetched int       // number of jobs fetched since the time since
}

const (
	// slotsWantedFor is how long reports are sent after a request of the leader.
	slotsWantedFor = 3 * time.Second
	// slotsCountedFor is the longest period over which fetched jobs are counted. After that both
	// the count and the period are halved, so that the average follows changes.
	slotsCountedFor = time.Minute
)

// slotsWanted is called when the leader requests the slots of some queues.
func (s *scope) slotsWanted(queues []string) {
	if !slices.ContainsFunc(queues, func(queue string) bool { return slices.Contains(s.queues, queue) }) {
		return
	}
	t, now := &s.slots, time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if now.After(t.until) {
		t.since, t.fetched = now, 0
	}
	if counted := now.Sub(t.since); counted > slotsCountedFor {
		t.since, t.fetched = now.Add(-counted/2), t.fetched/2
	}
	t.until = now.Add(slotsWantedFor)
	offer(t.due)
}

// fetch is called when the server has fetched a job, or has found all its queues empty.
func (t *slotTeller) fetch(found bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.empty = !found; found {
		t.fetched++
	} else if !time.Now().After(t.until) {
		offer(t.due)
	}
}

// offer sends a value to a channel that has room for one, if that is empty.
func offer(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// tellSlots sends the reports until the context ends. A report has the number of free slots and the
// average time between two fetched jobs.
func (s *scope) tellSlots(ctx context.Context) {
	name, t := uuid.NewString(), &s.slots
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.due:
		}
		t.mu.Lock()
		free, every := 0, time.Since(t.since)/time.Duration(t.fetched+1)
		if t.empty && s.markers.stopped.Err() == nil {
			free = max(0, s.prefetcher.slots-s.inFlight.busy())
		}
		t.mu.Unlock()
		call, cancel := context.WithTimeout(ctx, time.Second)
		_ = s.limiter.ReportSlots(call, name, free, every, s.queues) // the leader asks again in a second
		cancel()
	}
}
