// Package fairqueue decides whose turn it is. It gives turns to lanes of waiting
// jobs that share meters, and follows the jobs that it called until they come.
//
// A Core has no clock, does no I/O and starts no goroutine: time is a parameter,
// in microseconds of Redis's clock, and what it decides is carried out by the
// loop around it. The same calls give the same turns. It admits nothing: only
// meters do, so whatever it gets wrong, no limit is exceeded.
package fairqueue

import "math"

// Core knows the lanes of one scope, where each waits, and what is called. It
// is not safe for concurrent use.
type Core struct {
	lanes  map[string]*lane
	meters map[string]*meter
	queues map[string]*queue
	// seq is the number of the last turn, above the number of every lane.
	seq int64
	// due are the meters to look at, expiries the lanes to ask about, tells the
	// jobs to tell.
	due      line[*meter]
	expiries line[*lane]
	tells    []telling
	// tries are the turns that wait for their answers, at most room of them, and
	// served the meters they were given at.
	tries  []try
	room   int
	served []*meter
	// touched are the meters of which Sharing may have news.
	touched []*meter
	servers map[string]*server
	// closed are the queues with lanes that are passed over because no worker is free for them.
	closed []*queue
	// certain: what meters say of the future comes true.
	certain bool
	// off are the rules that a test takes out.
	off rule
}

// New returns a core that knows of no lane.
func New() *Core {
	return &Core{lanes: map[string]*lane{}, meters: map[string]*meter{}, queues: map[string]*queue{}, servers: map[string]*server{}}
}

// NewCertain returns a core for a forecast: its meters change by the turns alone, so
// it never tries one before the time that the meter said.
func NewForecast() *Core {
	c := New()
	c.certain = true
	return c
}

// never is later than every time.
const never int64 = math.MaxInt64

// Next returns when any of Turns, Tell and Expiring has something to do: now, a
// time to come, or math.MaxInt64 for never.
func (c *Core) Next(now int64) int64 {
	next := min(c.due.next(), c.expiries.next())
	if len(c.tells) > 0 {
		next = min(next, c.tells[0].at)
	}
	for _, q := range c.closed {
		next = min(next, q.reopens(now))
	}
	return max(now, next)
}
