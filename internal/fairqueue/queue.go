package fairqueue

import (
	"cmp"
	"slices"
)

// queue is one of asynq's queues.
type queue struct {
	name string
	// weight is how many turns it has while a queue of weight 1 has one. Queues of a lower rank go
	// first, whatever their weight.
	weight, rank int64
	// stopped says that the queue takes no jobs: it is paused, has no server, or all workers are
	// busy. Its lanes are parked.
	stopped   bool
	parked    []*lane
	arrivedAt int64 // when a granted job was last seen to come
	probedAt  int64 // when the last of its lanes with overdue jobs is to be asked about
	workers
}

// Weight is how a queue takes turns beside others.
type Weight struct {
	// Turns is how many turns it has while a queue of weight 1 has one.
	Turns int
	// Strict says that it goes before all queues of a lower weight, and behind all strict ones of a
	// higher weight. A queue that is not strict goes like a strict one of weight 1.
	Strict bool
}

// SetWeights says how queues take turns from now on. Those that are not named weigh 1.
func (c *Core) SetWeights(weights map[string]Weight) {
	for name := range weights {
		c.queue(name)
	}
	for name, q := range c.queues {
		w := weights[name]
		q.weight, q.rank = int64(max(1, w.Turns)), 0
		if w.Strict && !c.without(ranking) {
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

// park has a lane of a stopped queue wait at no meter. It keeps its key.
func (l *lane) park(key int64) {
	l.lastTurn, l.parked = key, true
	l.queue.parked = append(l.queue.parked, l)
}

// resumeQueue notes that the queue took a granted job.
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

// stop notes that a job that was promoted at a time has not come. If none has come since, the queue
// takes no jobs: its lanes hold nothing, and others do not wait for them.
func (c *Core) stop(now int64, q *queue, promotedAt int64) {
	if q.stopped || q.arrivedAt >= promotedAt || c.without(passingOver) {
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
