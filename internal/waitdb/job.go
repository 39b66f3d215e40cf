package waitdb

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/fairqueue"
	"github.com/headgate/headgate/throttle"
)

// Job is a queued job that asks for its permits. Only its JobID is required; its queue must not
// contain line breaks. The other fields may differ each time that the job asks.
type Job struct {
	throttle.JobID
	Priority Priority
	// MaxWait is how long the job may wait for its permits, from its first denial on. Then the
	// outcome is TooLate, and no sooner: jobs before it may leave, and running jobs may give
	// permits back. The zero value means any time.
	MaxWait time.Duration
	// New says that the job has not been put back since it was enqueued. If its ID waits all the
	// same, that is an earlier job, which was deleted: it is forgotten.
	New bool
	// QueuedAt is when the job came first, by the limiter's clock, if it comes again after an
	// attempt. It keeps its place in its lane by that, and MaxWait counts from its first denial
	// after the attempt. The zero value means that it comes first now.
	QueuedAt time.Time
	// WaitingSince is since when the job waits, by the limiter's clock, if it was allowed and has
	// not begun: MaxWait counts from then on. It needs a QueuedAt. The zero value means that it
	// does not wait.
	WaitingSince time.Time
	// Deadline is when the job is of no use any more, by this process's clock. Zero means never.
	Deadline time.Time
	// Grant is how long permits are reserved for the job once they are granted: as long as it may
	// take to come. A job that comes later may be denied again. The zero value means DefaultGrant.
	Grant time.Duration
	// MaxAdvance is how long before they exist the job may take granted permits of a funnel or a
	// token bucket. It must begin when they do: in the decision's BeginIn. Zero means that it
	// begins at once.
	MaxAdvance time.Duration
	// Fair is the fairness key, as of a tenant. While several keys of a queue wait for the same
	// permits each has as many turns as the others, however many jobs it has; with a Weight of 3,
	// three times as many. Each turn counts by the weight of its own job. Jobs without a key share
	// one of weight 1. A key has at most 200 bytes, a weight is at most 1000, and 0 means 1.
	Fair   string
	Weight int
}

// DefaultGrant is how long permits are reserved for a granted job that does not say how long it
// takes to come.
const DefaultGrant = 250 * time.Millisecond

// Priority orders the jobs of one lane. It is a head start and not a class of its own: a job of any
// priority gets its turn, however many High jobs come. Between lanes it means nothing.
type Priority int

// A job goes before those of the next lower priority that joined its lane up to HeadStart jobs
// earlier, and no further. So a Low job is overtaken by at most 2·HeadStart later jobs.
const (
	Normal Priority = iota
	High
	Low
)

// HeadStart is how many places in a lane one step of priority is worth.
const HeadStart = 1000

// headStart returns how many places later the job stands in its lane.
func (p Priority) headStart() int {
	switch p {
	case High:
		return -HeadStart
	case Low:
		return HeadStart
	}
	return 0
}

// validate refuses what would be another job, or lane, by its name.
func (j Job) validate() error {
	if strings.Contains(j.Queue, "\n") {
		return &throttle.FieldError{Field: "queue", Value: strconv.Quote(j.Queue), Want: "want a name without line breaks"}
	}
	return j.ValidateFair()
}

// ValidateFair refuses a key or a weight out of bounds.
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

// The methods below return fields as the scripts take them, in microseconds.

func (j Job) grantUS() int64 {
	if j.Grant <= 0 {
		return DefaultGrant.Microseconds()
	}
	return j.Grant.Microseconds()
}

// maxWaitUS is -1 for any time.
func (j Job) maxWaitUS() int64 {
	if j.MaxWait <= 0 {
		return -1
	}
	return j.MaxWait.Microseconds()
}

// queuedAtUS is 0 for now, and -1 if the job is new, too.
func (j Job) queuedAtUS() int64 {
	if j.New && j.QueuedAt.IsZero() {
		return -1
	}
	return unixMicro(j.QueuedAt)
}

// usefulUS is how long the job is of use from now, -1 for ever. Only the length of time goes to
// Redis, whose clock may differ.
func (j Job) usefulUS() int64 {
	if j.Deadline.IsZero() {
		return -1
	}
	return max(0, time.Until(j.Deadline).Microseconds())
}

func (j Job) fairnessLine() string { return fairqueue.FairnessLine(j.Fair, j.Weight) }

// appendNeeds appends needs as the scripts take them: triples of limit, key and cost.
func appendNeeds(args []any, needs []throttle.Need) []any {
	for _, n := range needs {
		args = append(args, n.Limit, n.Key, n.Cost)
	}
	return args
}
