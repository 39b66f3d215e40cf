// Package fairqueue is the fair scheduler of waiting jobs. A lane has the jobs of one queue and one
// fairness key that need the same meters, first in, first out. The Core decides which lane may try
// to get permits next. Granted jobs are promoted: moved to the head of their queue. A job arrives
// when its worker requests the permits. The Core tracks granted jobs until they arrive.
//
// A Core has no clock, does no I/O and starts no goroutine: time is a parameter, in microseconds of
// Redis's clock, and the loop around the Core carries out its decisions. The same calls give the
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
	// seq numbers turns, charges and starts of waits. It is at least the number of each lane passed to
	// AddLane.
	seq int64
	// due orders meters by the time at which they must be served; expiries orders lanes by the time
	// at which their grants must be checked.
	due      priorityQueue[*meter]
	expiries priorityQueue[*lane]
	// notifications are the granted jobs to promote, by time.
	notifications []notification
	pendingTurns  []pendingTurn   // turns that have no result yet
	touched       map[*meter]bool // meters whose number in Sharing may have changed
	slotQueues    []*queue        // queues with lanes that wait for a worker
	exact         bool            // meter replies never become outdated
	off           rule            // rules disabled by a test
}

// New returns a core that knows of no lane.
func New() *Core {
	return &Core{lanes: map[string]*lane{}, meters: map[string]*meter{}, queues: map[string]*queue{}, servers: map[string]*server{}, touched: map[*meter]bool{}}
}

// NewExact returns a core for simulations, where only the core's own turns change the meters. So a
// turn is never tried before the time that its meter reported.
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

func (c *Core) nextNumber() int64 {
	c.seq++
	return c.seq
}

// Need describes how many permits of one meter the first job of a lane needs, and when the meter
// can give them. Ready is a time in Unix microseconds, Refill a duration in microseconds.
type Need struct {
	Cost int64
	// Ready is the earliest time at which the meter has Cost free permits in addition to those
	// reserved or held for others.
	Ready int64
	// Known is false if Ready depends on the end of a running job or of a pause. Ready is then an
	// estimate, such as the end of a lease.
	Known bool
	// Blocked reports whether the meter is paused, or blocked by its upstream.
	Blocked bool
	// Refill is the time until Cost used permits are free again: Cost*period/N for a funnel or a
	// token bucket, the period for a window, the lease for a concurrency limit.
	Refill int64
	// PerRefill is the number of jobs of this cost whose permits become free at the same moment:
	// N/Cost for a window, 1 otherwise.
	PerRefill int64
}

// Turn is one attempt to grant the first job of a lane its permits.
type Turn struct {
	Lane string
	// Redis grants the job only if its permits are available within Advance, in microseconds. With
	// 0, the permits must be available now.
	Advance int64
	// Held is the number of permits of each meter, in the order of the lane's meters, that this
	// turn must not take: they are held for lanes with an earlier turn.
	Held []int64
}

// Outcome is the outcome of a turn.
type Outcome int

const (
	Granted    Outcome = iota // the lane's first job is granted: its permits are reserved
	Refused                   // a meter of the lane has too few free permits for the job
	Skipped                   // an earlier turn of the batch that shares a meter was refused
	Empty                     // no job waits in the lane
	Full                      // the lane already has as many granted jobs as the capacity of its meters allows
	Impossible                // a limit is gone or too small; a worker takes the job without permits and fails it
)

// Result is the reply to a Turn.
type Result struct {
	Outcome Outcome
	// Job is the ID of the job if the outcome is Granted or Impossible. A granted job's permits are
	// available from At, and reserved until Until, in Unix microseconds.
	Job       string
	At, Until int64
	// TakesEarly reports whether the job can be promoted before At. Its worker then takes the
	// permits early, and starts the job at At.
	TakesEarly bool
	// Next lists the needs of the lane's first job after the batch, in the order of the lane's
	// meters; nil if no job waits. Each Ready assumes the Held of the lane's last turn that was not
	// Skipped, or of its first turn if all were Skipped.
	Next []Need
	// Redis grants the job of Next at most MaxAdvance before its permits are available, in
	// microseconds.
	MaxAdvance int64
	// Granted is the number of granted jobs of the lane that have not arrived, counted right after
	// this turn. It means nothing if the turn was Skipped.
	Granted int
}

// rule is a bit set of scheduling rules. All are active in production; tests disable single rules
// to show their effect.
type rule int

const (
	keepPosition   rule = 1 << iota // a lane that moves to another meter keeps its position
	noOvertaking                    // no lane is granted before one with an earlier turn at one of its meters
	holding                         // a lane that waits for a faster meter keeps permits of its slower meter
	holdingBehind                   // permits are also kept back while the lane waits behind one with an earlier turn
	yielding                        // permits kept back for a lane are available to lanes with an earlier turn
	meeting                         // if a lane's meters are ready at different times, permits of the first are kept until all are ready
	filling                         // a lane is passed over if it has as many granted jobs as its meters can give at once
	passingOver                     // lanes of a queue that takes no jobs are passed over
	weighing                        // queues and fairness keys take turns by weight
	ranking                         // queues of a lower rank go first
	comingLast                      // a queue or key that becomes active starts behind those already waiting
	comingBack                      // a lane that was charged for a turn at a meter but not granted goes first there
	holdingSeveral                  // at window meters, permits are kept back for several turns of a lane
	promoteAgain                    // a granted job that does not arrive is promoted again
)

// isDisabled reports whether a test has disabled a rule.
func (c *Core) isDisabled(r rule) bool { return c.off&r != 0 }
