package scheduler

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/headgate/headgate/internal/asynqdb"
)

// slotTeller tells the leader of a scope how many worker slots of a server are free, so that a
// queue is granted no more permits than its workers can use. Slots count as free only while the
// server's queues are empty, because pending jobs take free slots. The server reports the number
// when the leader requests it, and when another number is free while its queues are empty. It is safe
// for concurrent use.
type slotTeller struct {
	due chan struct{} // receives a value when a report is due

	mu           sync.Mutex
	empty        bool             // whether the server has found its queues empty, and fetched no job since
	told         int              // free slots in the last report; -1 if the server has fetched a job since
	arrived      map[string]int64 // by queue: promoted jobs that the server has fetched so far
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

// noteStart is called when a fetched job takes a slot.
func (t *slotTeller) noteStart() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fetched++
}

// noteArrivals is called with the jobs of each fetch from a queue. Jobs that were put back before
// were promoted.
func (t *slotTeller) noteArrivals(queue string, jobs []asynqdb.Job) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.arrived == nil {
		t.arrived = map[string]int64{}
	}
	for _, j := range jobs {
		if t.empty, t.told = false, -1; j.Back {
			t.arrived[queue]++
		}
	}
}

// noteEmpty is called when the server has found all its queues empty, and free slots are free.
func (t *slotTeller) noteEmpty(free int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.empty = true
	t.tellIfChanged(free)
}

// noteEnd is called when a slot has become free.
func (t *slotTeller) noteEnd(free int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.empty {
		t.tellIfChanged(free)
	}
}

func (t *slotTeller) tellIfChanged(free int) {
	if free != t.told && !time.Now().After(t.reportUntil) {
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
// slots, the average time between two fetched jobs, and how many promoted jobs of each queue the
// server has fetched.
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
		if t.empty && s.markers.stopped.Err() == nil && !s.isDrained.Load() {
			free = s.freeSlots()
		}
		t.told = free
		arrived := make([]int64, len(s.queues))
		for i, queue := range s.queues {
			arrived[i] = t.arrived[queue]
		}
		t.mu.Unlock()
		call, cancel := context.WithTimeout(ctx, slotsTimeout)
		_ = s.limiter.ReportSlots(call, name, free, every, s.queues, arrived)
		cancel()
	}
}
