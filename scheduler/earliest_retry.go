package scheduler

import (
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
	// maxEarly is the longest time that a job waits in a worker for its start. An operator may run the
	// job at once: such a job comes earlier than that, and does not wait.
	maxEarly = 3 * time.Second
)

// spread returns when asynq retries a job that must not start before at, and the job's message with
// its own start. asynq's times are whole seconds, and one poll makes all jobs due that have come
// up to then. So that these jobs do not all start at once, each is due before at and waits in its
// worker for a random moment of the second after the poll.
func spread(at time.Time, msg []byte) (due time.Time, withStart []byte) {
	due = at.Truncate(time.Second)
	start := due.Add(time.Second + rand.N(spreadTime))
	return due, asynqdb.WithHeader(msg, startHeader, strconv.FormatInt(start.UnixMicro(), 10))
}

// early returns how long the job has to wait for its start.
func (a *attempt) early() time.Duration {
	text, ok := a.task.Headers()[startHeader]
	if !ok {
		return 0
	}
	us, _ := strconv.ParseInt(text, 10, 64) // a malformed time is long past
	if early := time.Until(time.UnixMicro(us)); early <= maxEarly {
		return early
	}
	return 0
}
