package waitdb

import (
	"context"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/duration"
	"github.com/headgate/headgate/throttle"
)

// Decision is the limiter's decision about a job.
type Decision struct {
	throttle.Decision
	// Unknown reports whether the wait of a denied job cannot be estimated, because a running job
	// must end first, or a limit must be resumed.
	Unknown bool
	// NoLimit reports whether a denied job waits for a limit which does not exist, or which is for
	// other apps.
	NoLimit bool
	// PutBack is the delay after which a denied job calls again even if it has not been granted. It
	// exceeds RetryAfter, because an early call costs a second denial.
	PutBack time.Duration
	// Blocked is the longest time for which RateLimited has blocked one of the job's keys. It is
	// zero if the time is unknown.
	Blocked time.Duration
	// Alone reports that the upstream rate limits this job and serves others. Fails reports that
	// RateLimited has not put the job back for this reason.
	Alone, Fails bool
	// TakenAt is the time, by this process's clock, from which the permits are valid. Only permits
	// that were taken in advance become valid later than they were taken.
	TakenAt time.Time
	// WantsFeedback reports whether the limiter must know how the job's call went, because a limit
	// of the job adapts its rate.
	WantsFeedback bool
	// Windowed reports whether an allowed job took permits of a window, which the limiter counts by
	// the clock.
	Windowed bool
	// Late is how long the permits of a granted job were reserved before it took them. It is zero
	// for a job that did not wait, or took its permits in advance. It is negative if a job that
	// waited had no reservation.
	Late time.Duration
}

// String returns what was decided, and by which limit. The text of a denied job has no time, because
// the text is kept while the job waits: the forecast says when the job is expected to run.
func (d Decision) String() string {
	text := d.Decision.String()
	denied, isDenied := strings.CutSuffix(text, ": retry after "+duration.Text(d.RetryAfter))
	if isDenied && (d.Unknown || d.PutBack > 0) { // the job waits in a lane
		return denied + ": it waits for permits"
	}
	return text
}

// decide calls the limiter's Decide with ask, and then reads the numbers of the reply that exist
// only for jobs. See lua/lanes/acquire.lua.
func (db *DB) decide(
	ctx context.Context, needs []throttle.Need, ask func(ctx context.Context, try int) (reply []any, holder string, err error),
) (Decision, error) {
	decision, n, err := db.Internals().Decide(ctx, needs, ask)
	d := Decision{Decision: decision}
	if err != nil || len(n) < 9 {
		return d, err
	}
	switch d.Outcome {
	case throttle.Denied:
		d.PutBack, d.Unknown, d.NoLimit = microseconds(n[7]), n[8] == 0, d.Capacity == 0
		if len(n) > 9 {
			d.Blocked = microseconds(n[9] - n[2])
		}
		if len(n) > 10 {
			d.Alone, d.Fails = n[10] > 0, n[10] > 1
		}
	case throttle.Allowed:
		d.WantsFeedback, d.Windowed = n[8]&1 != 0, n[8]&2 != 0
		if waited := n[9+2*len(needs):]; len(waited) > 0 { // start of the wait, number of denials, start of the reservation or 0
			d.Waited, d.Denials = microseconds(min(n[2], n[3])-waited[0]), int(waited[1])
			if d.Late = -1; waited[2] > 0 {
				d.Late = microseconds(n[2] - waited[2])
			}
		}
	}
	return d, nil
}
