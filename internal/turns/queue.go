package turns

import (
	"cmp"
	"slices"
)

// queue is one of asynq's.
type queue struct {
	name string
	// stopped says that the queue takes nothing: it is paused, has no server, or
	// all workers are busy. Its lanes are passed over.
	stopped bool
	// moved is when it was last seen that a called job came.
	moved  int64
	parked []*lane
	// probed is when the last of its lanes with overdue jobs is to be asked about.
	probed int64
}

// probePause lies between two lanes of a stopped queue that are asked about.
const probePause = 1_000_000

func (c *Core) queue(name string) *queue {
	q := c.queues[name]
	if q == nil {
		q = &queue{name: name}
		c.queues[name] = q
	}
	return q
}

// park has a lane of a stopped queue wait out of the way. It keeps its key.
func (l *lane) park(key int64) {
	l.turn.key, l.parked = key, true
	l.queue.parked = append(l.queue.parked, l)
}

// took says that the queue was seen to take a called job.
func (c *Core) took(now int64, q *queue) {
	q.moved = now
	if !q.stopped {
		return
	}
	q.stopped = false
	parked := q.parked
	q.parked = nil
	for _, l := range parked {
		if l.parked {
			l.parked = false
			c.enter(l, l.turn.key)
		}
	}
}

// stop says that a job that was told at a time has not come: if none has since
// then, the queue takes nothing. Its lanes hold nothing, and count for nobody as
// lanes that wait.
func (c *Core) stop(now int64, q *queue, told int64) {
	if q.stopped || q.moved >= told || c.without(passingOver) {
		return
	}
	q.stopped, q.probed = true, now
	for _, l := range c.waiting(q) {
		c.wake(l.at, now)
		c.leave(l)
		l.park(l.turn.key)
	}
}

// waiting returns the lanes of a queue that wait at a meter, by their keys.
func (c *Core) waiting(q *queue) []*lane {
	var lanes []*lane
	for _, l := range c.lanes {
		if l.queue == q && l.at != nil {
			lanes = append(lanes, l)
		}
	}
	slices.SortFunc(lanes, func(a, b *lane) int { return cmp.Compare(a.turn.key, b.turn.key) })
	return lanes
}

// probe is when the next of its lanes is to be asked about.
func (q *queue) probe(now int64) int64 {
	q.probed = min(max(q.probed, now)+probePause, now+mostPause)
	return q.probed
}
