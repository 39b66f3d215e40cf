package fairqueue

// Need is the need of a lane's first job for one meter, with the meter's reply. Times are
// microseconds.
type Need struct {
	Meter string
	Cost  int64
	// Ready is the time at which the meter can give Cost beyond the permits that are reserved and
	// held. It gets later as other lanes take permits, and earlier only if the meter changes.
	Ready int64
	// Known is false if Ready is unknown: all permits of a concurrency limit are leased.
	Known bool
	// Blocked reports whether the meter is paused, or blocked by its upstream.
	Blocked bool
	// Refill is the time after which used permits are free again: cost times period over n if they
	// return one by one, the period of a window, the lease of a concurrency limit.
	Refill int64
	// PerRefill is the number of such jobs whose permits become free at the same time: those of a
	// window, and at most one if permits return one by one.
	PerRefill int64
}

// Turn is one attempt to grant the first job of a lane its permits.
type Turn struct {
	Lane string
	// Advance is the longest time before its permits exist at which the job may be granted.
	Advance int64
	// Held is the number of permits of each of the lane's meters that older lanes hold, in the order
	// of the lane's name. The turn must not take them. Nil if nothing is held.
	Held []int64
}

// Outcome is the outcome of a turn.
type Outcome int

const (
	Granted    Outcome = iota // the lane's first job is granted: its permits are reserved
	Refused                   // some meter is not ready for the job
	Skipped                   // an earlier turn of the batch that shares a meter was refused
	Empty                     // no job waits in the lane
	Full                      // the lane has as many granted jobs as its meters give at once
	Impossible                // the limit is gone or too small: the job comes to learn it, without permits
)

// Result is the reply to a Turn.
type Result struct {
	Outcome Outcome
	// Job is the ID of the granted job. Its permits exist from At on, and are reserved until Until.
	Job       string
	At, Until int64
	// TakesEarly reports whether the job may take its permits before At, and begin at At.
	TakesEarly bool
	// Next lists the needs of the lane's first job after the turn, beyond the permits in Held, in
	// the order of the lane's meters. Nil if no job waits. All turns of a lane in a batch have the
	// same Next.
	Next []Need
	Held []int64
	// MaxAdvance is the longest time before its permits exist at which that job may be granted.
	MaxAdvance int64
	// Granted is the number of the lane's granted jobs that have not arrived, after this turn and
	// before the next. It may be missing if the turn was Skipped.
	Granted int
}

// GrantedJob is a granted job that must be moved to the head of its queue.
type GrantedJob struct{ Queue, ID, Lane string }

// State is the state of a granted job when it was moved to the head of its queue.
type State string

const (
	StateUnknown State = ""        // the queues could not be reached
	StateMoved   State = "moved"   // it was put back, and is now at the head of its queue
	StatePending State = "pending" // it was in its queue already
	StateActive  State = "active"  // a worker has it
	StateDone    State = "done"    // it waits for no permit: completed, archived or enqueued again
	StateGone    State = "gone"    // there is no such job
)
