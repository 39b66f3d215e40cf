package scheduler

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/fairqueue"
	"github.com/headgate/headgate/internal/usercode"
)

const (
	// maxOrdered is how many pending jobs at the head of a queue take turns for slots.
	maxOrdered = 10_000
	// maxMoved is how many jobs one call moves to the head of a queue.
	maxMoved = 1000
	// After a look at the pending jobs, a server pauses for pauseFactor times as long as the look took,
	// at least for orderPause and at most for orderInterval. Then there is another look if the last one
	// found new jobs, or after the next fetch that leaves jobs behind. While no slot is free, no job is
	// fetched, and there is a look after orderInterval.
	orderPause    = 100 * time.Millisecond
	orderInterval = time.Second
	pauseFactor   = 10
	// A look begins no page of keys after maxLook. The next look goes on, so jobs take turns before the
	// keys of all are known.
	maxLook = time.Second
	// orderAlone is how long after the start of a look no other server orders the jobs of the queue. It
	// is longer than a look with the pause after it.
	orderAlone = 5 * time.Second
	// keyTime is how long a look waits for the results of RuleFor.
	keyTime = time.Second
	// A look reads at most maxKeyPage messages at a time, and at most maxKeyBytes or one message.
	maxKeyPage  = 512
	maxKeyBytes = 1 << 18
)

// pendingOrder is the order of the pending jobs of one asynq queue.
type pendingOrder struct {
	*scope
	queue string
	order fairqueue.SlotOrder
}

// noteKey notes that a job of an asynq queue has a fairness key.
func (p *prefetcher) noteKey(queue string) {
	if !p.queues[queue].hasKeys.Swap(true) {
		offer(p.orderDue)
	}
}

// orderPending lets the fairness keys of pending jobs take turns for worker slots, until ctx ends. It
// moves jobs within asynq's list of pending jobs, so that those whose turn comes first are at its
// head. For queues whose jobs have no fairness keys it does nothing.
func (s *Server) orderPending(ctx context.Context) {
	name, orders := uuid.NewString(), map[string]*pendingOrder{}
	due := s.prefetcher.orderDue
	for again := (<-chan time.Time)(nil); ; {
		select {
		case <-ctx.Done():
			return
		case <-due:
		case <-again:
		}
		began, waiting := time.Now(), s.freeSlots() == 0
		news := false
		for queue, q := range s.prefetcher.queues {
			if !q.hasKeys.Load() {
				continue
			}
			if orders[queue] == nil {
				orders[queue] = &pendingOrder{scope: s.scopeOf(queue), queue: queue}
			}
			pending, found := orders[queue].look(ctx, name)
			waiting, news = waiting || pending, news || found
		}
		sleep(ctx, min(max(orderPause, time.Since(began)*pauseFactor), orderInterval))
		again = nil
		switch {
		case news:
			again = time.After(0)
		case waiting:
			again = time.After(orderInterval)
		}
	}
}

// look orders the pending jobs once, unless another server does. It reports whether several jobs may
// be pending, and whether some of them are new.
func (o *pendingOrder) look(ctx context.Context, server string) (waiting, news bool) {
	call := o.queueHealth.Begin()
	ids, granted, ok, err := o.db.Pending(ctx, o.queue, server, orderAlone, maxOrdered)
	call.Note(ctx, err)
	if !ok {
		o.order = fairqueue.SlotOrder{}
		return true, false
	}
	if len(ids) < 2 {
		return false, false
	}
	added := o.keysOf(ctx, o.order.Unknown(ids))
	o.order.Update(ids, added...)
	if moved, among := o.order.FirstMoved(ids, maxMoved); len(moved) > 0 {
		call := o.queueHealth.Begin()
		call.Note(ctx, o.db.Reorder(ctx, o.queue, granted+among, moved))
	}
	return true, len(added) > 0
}

// keysOf returns the fairness keys of pending jobs, by their rules. It leaves out the jobs after an
// error of Redis, and those for which maxLook is too short.
func (o *pendingOrder) keysOf(ctx context.Context, ids []string) (jobs []fairqueue.PendingJob) {
	for end := time.Now().Add(maxLook); len(ids) > 0 && ctx.Err() == nil && time.Now().Before(end); {
		page, err := o.readKeys(ctx, ids[:min(maxKeyPage, len(ids))])
		if err != nil {
			return jobs
		}
		jobs, ids = append(jobs, page...), ids[len(page):]
	}
	return jobs
}

// readKeys returns the fairness keys of the first of some jobs. A job whose rule is not known within
// keyTime has no key.
func (o *pendingOrder) readKeys(ctx context.Context, ids []string) (jobs []fairqueue.PendingJob, err error) {
	messages, err := o.db.FirstFields(ctx, o.queue, asynqdb.FieldMessage, maxKeyBytes, ids...)
	if err != nil {
		return nil, err
	}
	end, rules := time.Now().Add(keyTime), make([]<-chan usercode.Result[Rule], len(messages))
	for i, message := range messages {
		if m, err := asynqdb.ParseMessage([]byte(message)); err == nil && message != "" {
			rules[i] = o.askRule(job{Queue: o.queue, ID: ids[i]}, m.Task, end)
		}
	}
	wait, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	for i, asked := range rules {
		j := fairqueue.PendingJob{ID: ids[i]}
		if asked != nil {
			rule, _ := usercode.Receive(wait, asked)
			j.Key, j.Weight = rule.Value.FairnessKey, rule.Value.FairnessWeight
		}
		jobs = append(jobs, j)
	}
	return jobs, nil
}
