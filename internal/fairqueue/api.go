package fairqueue

// Need describes how many permits of one meter the first job of a lane needs, and when the meter
// can give them. Ready is a time in Unix microseconds, Refill a duration in microseconds.
type Need struct {
	Cost int64
	// Ready is the earliest time at which the meter has Cost free permits in addition to those
	// reserved or held for others. Ready moves later as other lanes take permits, and earlier only
	// if the meter changes.
	Ready int64
	// Known is false if all permits of a concurrency limit are leased. Ready is then the end of a
	// lease, but permits return sooner if jobs end sooner.
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
	// Held has, in the order of the lane's meters, the number of permits held for lanes with an
	// earlier turn. This turn must not take them.
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
	// meters; nil if no job waits. Each Ready assumes that Held of one turn is kept for others: of
	// the lane's last turn in the batch that was not Skipped, or of its first turn if all were
	// Skipped.
	Next []Need
	// Redis grants the job of Next at most MaxAdvance before its permits are available, in
	// microseconds.
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
