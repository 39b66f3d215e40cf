package waitdb

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/headgate/headgate/internal/fairqueue"
	"github.com/headgate/headgate/throttle"
)

// Job is a queued job that needs permits. Only its JobID is required, and the queue must not
// contain line breaks. The other fields may differ between two calls of the same job.
type Job struct {
	throttle.JobID
	Priority Priority
	// MaxWait is the maximum wait, counted from the first denial. If the job has waited longer, the
	// outcome is Expired. Zero means unlimited.
	MaxWait time.Duration
	// New is true for the first attempt after the job was enqueued. A waiting record with the same
	// ID then belongs to an earlier, deleted job and is removed.
	New bool
	// QueuedAt is the time at which an earlier attempt of the job was queued, by the limiter's
	// clock. If it is set, the job gets the place in its lane that belongs to that time, and MaxWait
	// counts from the first denial after that attempt. Zero means that there was no attempt.
	QueuedAt time.Time
	// WaitingSince is set if an earlier attempt of the job was allowed but did not start. It is the
	// start of that attempt's wait, by the limiter's clock. MaxWait then counts from WaitingSince,
	// and QueuedAt must be set, too. Zero means that there was no such attempt.
	WaitingSince time.Time
	// Deadline is the time after which the job is useless, by this process's clock. Zero means
	// none.
	Deadline time.Time
	// Grant is the time for which permits are reserved for the job once it is granted. If the job
	// arrives later, it may be denied again. Zero means DefaultGrant.
	Grant time.Duration
	// MaxAdvance is how early the job may take permits of a funnel or token bucket that become
	// valid later. The worker must then delay the job's start by the decision's BeginIn. Zero means
	// never early.
	MaxAdvance time.Duration
	// Fair is the fairness key, such as a tenant. While several keys of a queue wait for the same
	// permits, each has the same number of turns, and a key with a Weight of 3 three times as many.
	// Jobs without a key share one of weight 1. A key has at most 200 bytes, a weight is at most
	// 1000, and 0 means 1.
	Fair   string
	Weight int
	// WaitsForLimits is true if the job waits for a limit that does not exist, or that is for other
	// apps, until the limit is defined. If it is false, the outcome is NoLimit.
	WaitsForLimits bool
}

// DefaultGrant is the time for which permits are reserved for a granted job without a Grant.
const DefaultGrant = 250 * time.Millisecond

// Priority orders the jobs of one lane by a head start of HeadStart places, so that low-priority
// jobs cannot starve. It has no effect between lanes.
type Priority int

// A job overtakes jobs of the next lower priority that joined its lane at most HeadStart places
// before it. So a Low job is overtaken by at most 2·HeadStart later jobs.
const (
	Normal Priority = iota
	High
	Low
)

// HeadStart is the number of places in a lane that one step of priority is worth.
const HeadStart = 1000

// headStarts has the number of places by which a job joins its lane earlier (negative) or later.
var headStarts = map[Priority]int{High: -HeadStart, Low: HeadStart}

// ValidateFair returns an error if the fairness key or its weight is out of bounds.
func (j Job) ValidateFair() error {
	_, err := throttle.Normalize(throttle.Need{Limit: "fair", Key: j.Fair})
	if wrong, ok := errors.AsType[*throttle.FieldError](err); ok {
		wrong.Field = "fair"
		return wrong
	}
	if j.Weight < 0 || j.Weight > fairqueue.MaxKeyWeight {
		return &throttle.FieldError{Field: "weight", Value: strconv.Itoa(j.Weight), Want: fmt.Sprintf("want 1 to %d", fairqueue.MaxKeyWeight)}
	}
	return nil
}

// times returns the maximum wait, the time until the deadline and the time of a grant as the
// scripts take them, in microseconds. maxWait and useful are -1 if the job has none. All are
// durations, because Redis's clock may differ from this process's.
func (j Job) times() (maxWait, useful, grant int64) {
	maxWait, useful, grant = -1, -1, DefaultGrant.Microseconds()
	if j.MaxWait > 0 {
		maxWait = j.MaxWait.Microseconds()
	}
	if !j.Deadline.IsZero() {
		useful = max(0, time.Until(j.Deadline).Microseconds())
	}
	if j.Grant > 0 {
		grant = j.Grant.Microseconds()
	}
	return maxWait, useful, grant
}

// appendNeeds appends needs as the scripts take them: triples of limit, key and cost.
func appendNeeds(args []any, needs []throttle.Need) []any {
	for _, n := range needs {
		args = append(args, n.Limit, n.Key, n.Cost)
	}
	return args
}
