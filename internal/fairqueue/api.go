package fairqueue

// Need is what the first job of a lane needs of one of its meters, and what the meter says to it.
// Times are microseconds.
type Need struct {
	Meter string
	Cost  int64
	// Ready is when the meter could give Cost beyond what is reserved and held. It gets later as
	// others take, and earlier only by a change.
	Ready int64
	// Known is false if Ready is not known: a concurrency limit is full of leases.
	Known bool
	// Blocked says that the meter is paused, or blocked by its upstream.
	Blocked bool
	// Refill is how long used permits take to come back: cost times period over n if they come one
	// by one, the period of a window, the lease of a concurrency limit.
	Refill int64
	// PerRefill is for how many such jobs permits come back at once: as many as a window gives, and
	// at most one if they come one by one.
	PerRefill int64
}

// Turn is one try to grant the first job of a lane its permits.
type Turn struct {
	Lane string
	// Advance is how long before its permits exist the job may be granted them.
	Advance int64
	// Held is how many permits of each of the lane's meters, in the order of its name, older lanes
	// hold. The turn must leave them. Nil if nothing is held.
	Held []int64
}

// Outcome is what became of a turn.
type Outcome int

const (
	Granted    Outcome = iota // the lane's first job is granted: its permits are reserved
	Refused                   // some meter is not ready for the job
	Skipped                   // an earlier turn of the batch that shares a meter was refused
	Empty                     // no job waits in the lane
	Full                      // as many of the lane's jobs are granted as its meters give at once
	Impossible                // the limit is gone or too small: the job comes to learn it, without permits
)

// Result is the reply to a Turn.
type Result struct {
	Outcome Outcome
	// Job is the ID of the granted job, At when its permits exist, and Until how long they are
	// reserved.
	Job       string
	At, Until int64
	// TakesEarly says that the job may take its permits before they exist, and begin when they do.
	TakesEarly bool
	// Next is what the lane's first job needs now, in the order of the lane's meters, beyond what
	// Held says; nil if no job waits. All turns of a lane in a batch have the same Next.
	Next []Need
	Held []int64
	// MaxAdvance is how long before its permits exist this job may be granted them.
	MaxAdvance int64
	// Granted is how many of the lane's granted jobs have not come, after this turn and before the
	// next one. Skipped turns need not say.
	Granted int
}

// GrantedJob is a granted job that is to be moved to the head of its queue.
type GrantedJob struct{ Queue, ID, Lane string }

// State is what a granted job was found to be when it was to be moved.
type State string

const (
	StateUnknown State = ""        // the queues could not be reached
	StateMoved   State = "moved"   // it was put back, and is now at the head of its queue
	StatePending State = "pending" // it was in its queue already
	StateActive  State = "active"  // a worker has it
	StateDone    State = "done"    // it waits for no permit: completed, archived or enqueued anew
	StateGone    State = "gone"    // there is no such job
)
