package scheduler

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/throttle"
)

// EarliestRetrier is implemented by errors that know before which time another attempt makes no
// sense, such as a *tasks.StatusError of a response with Retry-After. If a handler returns such an
// error, wrapped or not, and the job fails, its next attempt does not begin before that time, or
// before a day if that is earlier. Jobs with the same time begin one after the other within a
// second.
type EarliestRetrier interface {
	error
	// EarliestRetry returns the time, or the zero Time if there is none.
	EarliestRetry() time.Time
}

// earliestRetry returns the time before which a job that failed with err does not run again, or the
// zero Time.
func earliestRetry(err error) time.Time {
	e, ok := errors.AsType[EarliestRetrier](err)
	if !ok {
		return time.Time{}
	}
	at, now := e.EarliestRetry(), time.Now()
	switch latest := now.Add(throttle.Day); {
	case !at.After(now):
		return time.Time{}
	case at.After(latest):
		return latest
	}
	return at
}

const (
	// startHeader is the header with the Unix microsecond before which a job does not start.
	startHeader = "headgate-start"
	// spreadTime is the time over which jobs start that an upstream has told the same time.
	spreadTime = time.Second
	// maxEarly is the longest time for which a fetched job goes back until its start. An operator may run
	// the job at once: such a job comes earlier than that, and does not wait.
	maxEarly = 3 * time.Second
)

// spread returns when asynq retries a job that must not start before at, and the job's message with
// its own start. asynq's times are whole seconds, and one poll makes all jobs due that have come
// up to then. So that these jobs do not all start at once, each is due before at and starts in a
// random moment of the second after the poll: see withoutEarly.
func spread(j job, at time.Time, msg []byte) (due time.Time, withStart []byte) {
	due = at.Truncate(time.Second)
	start := due.Add(time.Second + rand.N(spreadTime))
	return due, asynqdb.WithJobHeader(j, msg, startHeader, strconv.FormatInt(start.UnixMicro(), 10))
}

// withoutEarly returns the fetched jobs that may start now. The others go back, and are promoted at
// their start, so they hold no worker slot until then. If the promotion fails, asynq's next poll
// makes the job pending.
func (p *prefetcher) withoutEarly(ctx context.Context, all []*attempt) (due []*attempt) {
	var backs []*asynqdb.PutBack
	for _, a := range all {
		early := a.early()
		if early <= 0 {
			due = append(due, a)
			continue
		}
		back := &asynqdb.PutBack{Job: a.Job, At: time.Now().Add(early)}
		if p.canPromote.Load() {
			_, back.Scope = a.scope.limiter.Scope()
			time.AfterFunc(early, func() { _, _ = p.db.Promote(p.calls, a.JobID) })
		}
		backs = append(backs, back)
	}
	if len(backs) > 0 {
		p.db.PutBack(ctx, backs[0].Queue, backs...) // if it fails, recovery puts the jobs back
	}
	return due
}

// early returns how long it is until the start of a job that must not start yet, or 0.
func (a *attempt) early() time.Duration {
	if a.task == nil { // the message is not valid
		return 0
	}
	us, err := strconv.ParseInt(asynqdb.JobHeader(a.JobID, a.task.Headers(), startHeader), 10, 64)
	if early := time.Until(time.UnixMicro(us)); err == nil && early <= maxEarly {
		return early
	}
	return 0
}
