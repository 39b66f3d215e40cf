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
// server's queues are empty, because pending jobs take free slots. The server reports the number
// when the leader requests it, and when its queues become empty. It is safe for concurrent use.
type slotTeller struct {
	due chan struct{} // receives a value when a report is due

	mu           sync.Mutex
	empty        bool // whether the server has found its queues empty, and fetched no job since
	reportUntil  time.Time
	countedSince time.Time
	fetched      int // number of jobs fetched since countedSince
}

const (
	// reportPeriod is how long reports are sent after a request of the leader.
	reportPeriod = 3 * time.Second
	// slotsTimeout is how long a report may take. The leader asks again after the same time.
	slotsTimeout = time.Second
	// maxCountPeriod is the longest period over which fetched jobs are counted. After that both the
	// count and the period are halved, so that the average follows changes.
	maxCountPeriod = time.Minute
)

// slotsWanted is called when the leader requests the slots of some queues.
func (s *scope) slotsWanted(queues []string) {
	if !slices.ContainsFunc(queues, func(queue string) bool { return slices.Contains(s.queues, queue) }) {
		return
	}
	t, now := &s.slots, time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if now.After(t.reportUntil) {
		t.countedSince, t.fetched = now, 0
	}
	if counted := now.Sub(t.countedSince); counted > maxCountPeriod {
		t.countedSince, t.fetched = now.Add(-counted/2), t.fetched/2
	}
	t.reportUntil = now.Add(reportPeriod)
	offer(t.due)
}

// noteFetch is called when the server has fetched a job, or has found all its queues empty.
func (t *slotTeller) noteFetch(found bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.empty = !found; found {
		t.fetched++
	} else if !time.Now().After(t.reportUntil) {
		offer(t.due)
	}
}

// offer sends a value to c, or does nothing if c is full.
func offer(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// tellSlots sends reports to the leader until the context ends. A report has the number of free
// slots and the average time between two fetched jobs.
func (s *scope) tellSlots(ctx context.Context) {
	name, t := uuid.NewString(), &s.slots
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.due:
		}
		t.mu.Lock()
		free, every := 0, time.Since(t.countedSince)/time.Duration(t.fetched+1)
		if t.empty && s.markers.stopped.Err() == nil {
			free = max(0, s.prefetcher.slots-s.inFlight.occupiedSlots())
		}
		t.mu.Unlock()
		call, cancel := context.WithTimeout(ctx, slotsTimeout)
		_ = s.limiter.ReportSlots(call, name, free, every, s.queues)
		cancel()
	}
}
