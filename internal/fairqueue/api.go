package fairqueue

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
	// Refill is how long, in microseconds, the permits take to come again once they
	// are used: cost times period over n where they come one by one, the period of
	// a window, the lease of a concurrency limit.
	Refill int64
	// Together is for how many such jobs permits come again at once: as many as a window gives.
	// It is at most one where they come one by one.
	PerRefill int64
}

// Turn is one try to call the first job of a lane.
type Turn struct {
	Lane string
	// Ahead is how long, in microseconds, before its permits exist the job may be called.
	Advance int64
	// Held is how many permits of each of the lane's meters, in the order of its
	// name, older lanes hold: they are to be left. It is nil where nothing is held.
	Held []int64
}

// Outcome is what became of a turn.
type Outcome int

// The outcomes.
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
	// Early is whether it may take its permits before they exist, and begin when they do.
	TakesEarly bool
	// Next is what the lane's first job needs now, in the order of the lane's
	// meters; nil if none waits. That is beyond Held, which lanes that go before hold: a
	// lane's turns of one batch are all told the same, as of the last that was tried.
	Next []Need
	Held []int64
	// Ahead is how far ahead of its time this job may be called, in microseconds, whatever the
	// turn allows.
	MaxAdvance int64
	// Called is how many of the lane's jobs are called and have not come, after
	// this turn and before the next of the batch. Skipped turns need not say.
	Granted int
}

// Told is a called job that is to be told: moved to the head of its queue.
type GrantedJob struct{ Queue, ID, Lane string }

// Fate is what became of a job that was told.
type State int

// The fates.
const (
	// Unknown: nobody could be asked.
	StateUnknown State = iota
	// Moved: it was put back, and is now at the head of its queue.
	StateMoved
	// Pending: it was in its queue already.
	StatePending
	// Active: a worker has it.
	StateActive
	// Done: it is completed or archived.
	StateDone
	// Gone: there is no such job.
	StateGone
)
