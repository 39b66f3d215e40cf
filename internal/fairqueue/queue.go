package fairqueue

import (
	"cmp"
	"slices"
)

// queue is one of asynq's.
type queue struct {
	name string
	// weight is how many turns it has while another one has one. Queues of another rank
	// come before it whatever their weight.
	weight, rank int64
	// stopped says that the queue takes nothing: it is paused, has no server, or
	// all workers are busy. Its lanes are passed over.
	stopped bool
	// moved is when it was last seen that a called job came.
	moved  int64
	parked []*lane
	// probed is when the last of its lanes with overdue jobs is to be asked about.
	probed int64
	room
}

// Weight is how a queue takes turns beside others.
type Weight struct {
	// Turns is how many it has while another one has as many as its own weight.
	Turns int
	// Strict says that it goes before all queues that weigh less, and behind all strict
	// ones that weigh more, whatever turns they had. One that is not strict is behind all
	// strict ones but those of weight 1.
	Strict bool
}

// Weigh says how queues take turns from now on. Those that are not named weigh 1.
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
		if l.at != nil && l.turn.position > 0 {
			c.stand(l)
		}
	}
	for _, m := range c.meters {
		for _, s := range m.turns.parts {
			s.place.rank, s.place.key = c.queue(s.name).rank, max(s.place.key, m.turns.begun)
			if s.place.position > 0 {
				m.turns.line.put(&s.place, s.place.key)
			}
		}
		c.wake(m, 0)
	}
}

// probePause lies between two lanes of a stopped queue that are asked about.
const probePause = 1_000_000

func (c *Core) queue(name string) *queue {
	q := c.queues[name]
	if q == nil {
		q = &queue{name: name, weight: 1, room: newRoom()}
		c.queues[name] = q
	}
	return q
}

// park has a lane of a stopped queue wait out of the way. It keeps its key.
func (l *lane) park(key int64) {
	l.number, l.parked = key, true
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
			c.enter(l, l.number)
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
		l.park(l.number)
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
	slices.SortFunc(lanes, func(a, b *lane) int { return cmp.Compare(a.number, b.number) })
	return lanes
}

// probe is when the next of its lanes is to be asked about.
func (q *queue) probe(now int64) int64 {
	q.probed = min(max(q.probed, now)+probePause, now+mostPause)
	return q.probed
}
