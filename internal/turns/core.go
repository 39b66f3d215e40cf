// Package turns decides whose turn it is. It gives turns to lanes of waiting
// jobs that share meters, and follows the jobs that it called until they come.
//
// A Core has no clock, does no I/O and starts no goroutine: time is a parameter,
// in microseconds of Redis's clock, and what it decides is carried out by the
// loop around it. The same calls give the same turns. It admits nothing: only
// meters do, so whatever it gets wrong, no limit is exceeded.
package turns

import "math"

// Core knows the lanes of one scope, where each waits, and what is called. It
// is not safe for concurrent use.
type Core struct{}

// New returns a core that knows of no lane.
func New() *Core { return &Core{} }

// Need is what the first job of a lane needs of one of its meters, and what the
// meter says to that.
type Need struct {
	Meter string
	Cost  int64
	// Ready is the first microsecond at which the meter could give Cost beyond
	// what is reserved, and what was said to be held. It gets later as others
	// take, and earlier only by a change.
	Ready int64
	// Known is false where nobody knows when that is: a concurrency limit is
	// full of leases.
	Known bool
	// Blocked says that the meter is paused, or shut by its upstream.
	Blocked bool
	// Worth is how long, in microseconds, the permits take to come again: cost
	// times period over n, or a concurrency limit's lease.
	Worth int64
}

// Turn is one try to call the first job of a lane.
type Turn struct {
	Lane string
	// Ahead allows the call of a job whose permits will exist in a moment.
	Ahead bool
	// Held is how many permits of each of the lane's meters older lanes hold:
	// they are to be left.
	Held []int64
}

// Outcome is what became of a turn.
type Outcome int

const (
	// Granted: the lane's first job is called, its permits are reserved.
	Granted Outcome = iota
	// Refused: some meter is not ready for it.
	Refused
	// Skipped: a turn before it that shares a meter was refused.
	Skipped
	// Empty: no job waits in the lane.
	Empty
	// Full: as many of the lane's jobs are called as its meters give at once.
	Full
	// Learn: its limit is gone or too small. The job is called to learn it, and
	// nothing is reserved.
	Learn
)

// Result is the answer to a Turn.
type Result struct {
	Outcome Outcome
	// Job is the ID of the called job, At when its permits exist, and Until the
	// microsecond until which they are reserved.
	Job       string
	At, Until int64
	// Next is what the lane's first job needs now, in the order of the lane's
	// meters; nil if none waits.
	Next []Need
	// Called is how many of the lane's jobs are called and have not come, after
	// this turn.
	Called int
}

// Told is a called job that is to be told: moved to the head of its queue.
type Told struct{ Queue, ID, Lane string }

// Fate is what became of a job that was told.
type Fate int

const (
	// Unknown: nobody could be asked.
	Unknown Fate = iota
	// Moved: it was put back, and is now at the head of its queue.
	Moved
	// Pending: it was in its queue already.
	Pending
	// Active: a worker has it.
	Active
	// Done: it is completed or archived.
	Done
	// Gone: there is no such job.
	Gone
)

// Made says that a lane got its first job. A lane that is made again, or named
// twice, keeps its turn.
func (c *Core) Made(lane string, number int64) {}

// Changed says that what was told of a meter's readiness is void.
func (c *Core) Changed(meter string) {}

// ChangedLimit says the same of all meters of a limit.
func (c *Core) ChangedLimit(limit string) {}

// ChangedAll says the same of all meters.
func (c *Core) ChangedAll() {}

// Turns returns at most max turns to try now, in this order.
func (c *Core) Turns(now int64, max int) []Turn { return nil }

// Tried takes the results of the last Turns, in their order. Results that are
// missing were lost on the way: their jobs may be called.
func (c *Core) Tried(now int64, results []Result) {}

// Recalls returns at most max lanes some of whose called jobs should have come.
func (c *Core) Recalls(now int64, max int) []string { return nil }

// Recalled says what of a lane is called: how many jobs have not come, the IDs
// of those for which nothing is reserved any more, and whether any job waits.
// After a takeover the IDs of all called jobs are to be passed: what this core
// has not called it tells at once.
func (c *Core) Recalled(now int64, lane string, left int, overdue []string, waits bool) {}

// Came says that a called job of a full lane came.
func (c *Core) Came(now int64, lane string) {}

// Tell returns at most max called jobs that are to be told now.
func (c *Core) Tell(now int64, max int) []Told { return nil }

// Fate says what became of a job that Tell returned. One that is done or gone is
// not called any more; it is the caller's to have Redis forget it.
func (c *Core) Fate(now int64, job Told, fate Fate) {}

// Sharing returns the meters for which the number of lanes that take turns there
// has changed since the last call: zero where nobody waits and nothing is held.
func (c *Core) Sharing() map[string]int { return nil }

// Next returns when any of the above has something to do: now or earlier if it
// has, math.MaxInt64 for never.
func (c *Core) Next(now int64) int64 { return math.MaxInt64 }
