// Package fairqueue decides whose turn it is. It gives turns to lanes of waiting jobs that share
// meters, and follows the granted jobs until they come.
//
// A Core has no clock, does no I/O and starts no goroutine: time is a parameter, in microseconds of
// Redis's clock, and the loop around the Core carries out what it decides. The same calls give the
// same turns. A Core admits nothing: only meters do, so no mistake of it exceeds a limit.
package fairqueue

import "math"

// Core knows the lanes of one scope, at which meter each waits, and which jobs are granted. It is
// not safe for concurrent use.
type Core struct {
	lanes   map[string]*lane
	meters  map[string]*meter
	queues  map[string]*queue
	servers map[string]*server
	// seq is the number of the last turn, and at least that of every lane.
	seq int64
	// due are the meters to serve, expiries the lanes whose grants may have expired.
	due      sorted[*meter]
	expiries sorted[*lane]
	// notifications are the granted jobs to promote, by time.
	notifications []notification
	// pendingTurns are the turns that have no reply yet, at most maxPendingTurns. served are the
	// meters that gave these turns.
	pendingTurns    []pendingTurn
	maxPendingTurns int
	served          []*meter
	touched         []*meter // for which Sharing may have news
	// slotQueues are the queues with lanes that wait for a free worker slot.
	slotQueues []*queue
	// exact reports whether meters keep the times that they gave, as in a forecast.
	exact bool
	off   rule // the rules that a test takes out
}

// New returns a core that knows of no lane.
func New() *Core {
	return &Core{lanes: map[string]*lane{}, meters: map[string]*meter{}, queues: map[string]*queue{}, servers: map[string]*server{}}
}

// NewExact returns a core whose meters change by its turns alone, so that it never tries a turn
// before the time that the meter said.
func NewExact() *Core {
	c := New()
	c.exact = true
	return c
}

const never int64 = math.MaxInt64

// Next returns when Turns, ToPromote or ToExpire has something to do: now, later, or
// math.MaxInt64 for never.
func (c *Core) Next(now int64) int64 {
	next := min(c.due.next(), c.expiries.next())
	if len(c.notifications) > 0 {
		next = min(next, c.notifications[0].at)
	}
	for _, q := range c.slotQueues {
		next = min(next, q.reopens(now))
	}
	return max(now, next)
}
