package fairqueue

import (
	"cmp"
	"slices"
)

// queue is one of asynq's queues.
type queue struct {
	name string
	// weight is the share of turns relative to a queue of weight 1. Queues with a lower rank are
	// served first regardless of weight.
	weight, rank int64
	// stopped means that promoted jobs did not start: the queue is probably paused, has no server,
	// or all workers are busy. Its lanes are parked.
	stopped   bool
	parked    []*lane
	arrivedAt int64 // time at which a granted job last arrived
	probedAt  int64 // time of the last scheduled probe of one of its lanes
	workers
}

// Weight is the priority of a queue in asynq's sense.
type Weight struct {
	// Turns is how many turns it has while a queue of weight 1 has one.
	Turns int
	// Strict means asynq's strict priority: the queue is served before all queues of lower weight.
	// Queues that are not strict rank like a strict queue of weight 1.
	Strict bool
}

// SetWeights replaces the queue weights. Missing queues have weight 1.
func (c *Core) SetWeights(weights map[string]Weight) {
	for name := range weights {
		c.queue(name)
	}
	for name, q := range c.queues {
		w := weights[name]
		q.weight, q.rank = int64(max(1, w.Turns)), 0
		if w.Strict && !c.isDisabled(ranking) {
			q.rank = 1 - q.weight
		}
	}
	for _, l := range c.lanes {
		if l.waitsAt != nil && l.item.position > 0 {
			c.enqueue(l)
		}
	}
	for _, m := range c.meters {
		for _, s := range m.shares.parts {
			s.item.rank, s.item.key = c.queue(s.name).rank, max(s.item.key, m.shares.servedPass)
			s.reposition()
		}
		c.wake(m, 0)
	}
}

func (c *Core) queue(name string) *queue {
	q := c.queues[name]
	if q == nil {
		q = &queue{name: name, weight: 1}
		q.grantedLanes = map[*lane]struct{}{}
		c.queues[name] = q
	}
	return q
}

// park keeps the position of a lane whose queue is stopped. The lane waits at no meter.
func (l *lane) park(key int64) {
	l.lastTurn, l.parked = key, true
	l.queue.parked = append(l.queue.parked, l)
}

// resumeQueue records that the queue took a granted job.
func (c *Core) resumeQueue(now int64, q *queue) {
	q.arrivedAt = now
	if !q.stopped {
		return
	}
	parked := q.parked
	q.stopped, q.parked = false, nil
	for _, l := range parked {
		if l.parked {
			l.parked = false
			c.enter(l, l.lastTurn)
		}
	}
}

// stop is called when a promoted job did not arrive. If no other job of the queue has arrived
// since, the queue is considered stopped and its lanes are parked.
func (c *Core) stop(now int64, q *queue, promotedAt int64) {
	if q.stopped || q.arrivedAt >= promotedAt || c.isDisabled(passingOver) {
		return
	}
	q.stopped, q.probedAt = true, now
	var waiting []*lane
	for _, l := range c.lanes {
		if l.queue == q && l.waitsAt != nil {
			waiting = append(waiting, l)
		}
	}
	slices.SortFunc(waiting, func(a, b *lane) int { return cmp.Compare(a.lastTurn, b.lastTurn) })
	for _, l := range waiting {
		c.wake(l.waitsAt, now)
		c.leave(l)
		l.park(l.lastTurn)
	}
}
