// Package fairqueue is the fair scheduler of waiting jobs. A lane has the jobs of one queue and one
// fairness key that need the same meters, first in, first out. The Core decides which lane may try
// to get permits next. Granted jobs are promoted: moved to the head of their queue. A job arrives
// when its worker requests the permits. The Core tracks granted jobs until they arrive.
//
// A Core has no clock, does no I/O and starts no goroutine: time is a parameter, in microseconds of
// Redis's clock, and the loop around the Core carries out what it decides. The same calls give the
// same turns. A Core only proposes turns. Redis checks every limit again, so a wrong decision can
// delay jobs but never exceed a limit.
package fairqueue

import "math"

// Core knows the lanes of one scope, at which meter each waits, and which jobs are granted. It is
// not safe for concurrent use.
type Core struct {
	lanes   map[string]*lane
	meters  map[string]*meter
	queues  map[string]*queue
	servers map[string]*server
	// seq is the last number of a turn, a charge or a new lane. It is at least the number of each
	// lane passed to AddLane.
	seq int64
	// due orders meters by the time at which they must be served; expiries orders lanes by the time
	// at which their grants must be checked.
	due      priorityQueue[*meter]
	expiries priorityQueue[*lane]
	// notifications are the granted jobs to promote, by time.
	notifications []notification
	// pendingTurns are the turns that have no reply yet, at most maxPendingTurns. served lists the
	// meters that gave their lanes these turns.
	pendingTurns    []pendingTurn
	maxPendingTurns int
	served          []*meter
	touched         map[*meter]bool // meters whose result of Sharing may have changed
	// slotQueues are the queues with lanes that wait for a worker.
	slotQueues []*queue
	// exact is set in a simulation: meter replies never become outdated.
	exact bool
	off   rule // rules disabled by a test
}

// New returns a core that knows of no lane.
func New() *Core {
	return &Core{lanes: map[string]*lane{}, meters: map[string]*meter{}, queues: map[string]*queue{}, servers: map[string]*server{}, touched: map[*meter]bool{}}
}

// NewExact returns a core for simulations, in which only its own turns change the meters. It never
// tries a turn before the time a meter reported.
func NewExact() *Core {
	c := New()
	c.exact = true
	return c
}

const never int64 = math.MaxInt64

// Next returns the next time, not before now, at which Turns, ToPromote or ToExpire has something
// to do, or math.MaxInt64 if there is none.
func (c *Core) Next(now int64) int64 {
	next := min(c.due.next(), c.expiries.next())
	if len(c.notifications) > 0 {
		next = min(next, c.notifications[0].at)
	}
	for _, q := range c.slotQueues {
		next = min(next, q.reopensAt(now))
	}
	return max(now, next)
}
