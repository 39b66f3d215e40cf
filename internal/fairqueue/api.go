package fairqueue

// Need describes how many permits of one meter the first job of a lane needs, and when the meter
// can give them. Times are microseconds.
type Need struct {
	Cost int64
	// Ready is the earliest time at which the meter has Cost free permits in addition to those
	// reserved or held for others. Ready moves later as other lanes take permits, and earlier only
	// if the meter changes.
	Ready int64
	// Known is false if Ready is unknown: all permits of a concurrency limit are leased.
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
	// Advance is the longest time before its permits are available at which the job may be granted,
	// in microseconds. With 0 they must be available now.
	Advance int64
	// Held has, for each meter of the lane, the number of permits held for lanes with an earlier
	// turn. This turn must not take them.
	Held []int64
}

// Outcome is the outcome of a turn.
type Outcome int

const (
	Granted    Outcome = iota // the lane's first job is granted: its permits are reserved
	Refused                   // some meter is not ready for the job
	Skipped                   // an earlier turn of the batch that shares a meter was refused
	Empty                     // no job waits in the lane
	Full                      // the lane already has as many granted jobs as the capacity of its meters allows
	Impossible                // a limit is gone or too small; the job runs without permits, so that its worker fails it
)

// Result is the reply to a Turn.
type Result struct {
	Outcome Outcome
	// Job is the ID of the job if the outcome is Granted or Impossible. A granted job's permits are
	// available from At, and reserved until Until, in Unix microseconds.
	Job       string
	At, Until int64
	// TakesEarly reports whether the worker may fetch the job and take its permits before At, and
	// delay its start until At.
	TakesEarly bool
	// Next lists the needs of the lane's first job after the batch, in the order of the lane's
	// meters; nil if no job waits. Ready is the time for these permits in addition to Held of the
	// lane's last turn that was not Skipped, or of its first turn if all were.
	Next []Need
	// MaxAdvance is the longest time before its permits are available at which Redis grants the job
	// of Next.
	MaxAdvance int64
	// Granted is the number of granted jobs of the lane that have not arrived, counted right after
	// this turn. It means nothing if the turn was Skipped.
	Granted int
}

// GrantedJob is a granted job that must be moved to the head of its queue.
type GrantedJob struct{ Queue, ID, Lane string }

// State is the state of a granted job after an attempt to move it to the head of its queue.
type State string

const (
	StateUnknown State = ""        // the queues could not be reached
	StateMoved   State = "moved"   // it was put back, and is now at the head of its queue
	StatePending State = "pending" // it was in its queue already
	StateActive  State = "active"  // a worker has it
	StateDone    State = "done"    // it no longer waits for permits: it was completed, archived or enqueued again
	StateGone    State = "gone"    // there is no such job
)
