package scheduler

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/duration"
)

// ErrUnable is wrapped by an error of RuleFor or of a handler which says that this worker cannot run
// the job because of its own config or version, so that another worker may. During a deploy, for
// example, only the new workers know a new task type.
//
// The server puts such a job back for other workers. That spends no attempt and calls no
// ErrorHandler. If RuleFor returns the error, the job requests no permits; if a handler returns it,
// the job returns its permits. When no worker could run the job for the time of [WithUnknownFor],
// the attempt fails as after any other error: asynq retries the job, or archives it if the error also
// wraps asynq.SkipRetry. An error of asynq.NotFound counts as ErrUnable, too.
var ErrUnable = errors.New("this worker cannot run the job")

// DefaultUnknownFor is the default of [WithUnknownFor].
const DefaultUnknownFor = 10 * time.Minute

// WithUnknownFor sets how long a job is put back for other workers if the workers that take it cannot
// run it: see [ErrUnable]. The time counts from the first worker that could not. Zero means
// DefaultUnknownFor.
func WithUnknownFor(d time.Duration) Option { return func(o *options) { o.unknownFor = d } }

const (
	// minUnablePause and maxUnablePause bound the pause of a job that this worker cannot run. The
	// pause is a quarter of the time since the first such finding.
	minUnablePause = 2 * time.Second
	maxUnablePause = 15 * time.Second
)

// unableSinceHeader is the header of a job's message with the time since which no worker could run
// the job, in Unix microseconds. A worker that can run the job removes the text.
const unableSinceHeader = "headgate-unable-since"

// isUnable reports whether an error says that this worker cannot run the job.
func isUnable(err error) bool {
	return errors.Is(err, ErrUnable) || errors.Is(err, asynq.ErrHandlerNotFound)
}

// checkHandler returns an error if the program's mux has no handler for a task. If the program's
// handler is no mux, only the handler itself knows.
func (s *Server) checkHandler(task *asynq.Task) error {
	mux := s.mux.Load()
	if mux == nil {
		return nil
	}
	if _, pattern := mux.Handler(task); pattern == "" {
		return asynq.NotFound(context.Background(), task)
	}
	return nil
}

// readUnableSince returns the time in the message's header, or the zero Time. It clears the header in
// the attempt's copy of the message, so that whatever the server writes next clears it in Redis.
func (a *attempt) readUnableSince() (since time.Time) {
	if a.task.Headers()[unableSinceHeader] == "" {
		return since
	}
	a.Msg = asynqdb.WithHeader(a.Msg, unableSinceHeader, "")
	at, err := strconv.ParseInt(asynqdb.JobHeader(a.JobID, a.task.Headers(), unableSinceHeader), 10, 64)
	if err != nil {
		return since
	}
	return time.UnixMicro(at)
}

// mayHaveLane reports whether a job has a lane, or that is unknown because Redis cannot be used.
func (s *scope) mayHaveLane(j job) bool {
	ctx, cancel := context.WithTimeout(context.Background(), reportTimeout)
	defer cancel()
	known, err := s.limiter.Known(ctx, []job{j})
	return err != nil || known[0]
}

// putBackUnable returns the error that puts a job back for other workers because of err. If no worker
// could run the job for unknownFor, it returns an error that wraps err, and the attempt fails. A job
// that has a lane stays in it, and the dispatcher sends the job to a worker again.
func (a *attempt) putBackUnable(err error, hasLane bool) error {
	s, now := a.scope, time.Now()
	since := a.unableSince
	if since.IsZero() || since.After(now) {
		since = now
	}
	end := since.Add(s.unknownFor)
	if !a.deadline.IsZero() && a.deadline.Before(end) {
		end = a.deadline
	}
	if !now.Before(end) {
		sealed, _ := seal(err).(*sealedError)
		text := fmt.Sprintf("worker %s: %s; no other worker could run the job for %s", asynqdb.ProcessName(), asynqdb.PlainError(sealed.text), duration.Text(now.Sub(since)))
		return &sealedError{program: sealed.program, text: text, is: sealed.is}
	}
	why := fmt.Sprintf("worker %s: %s; put back for another worker until %s", asynqdb.ProcessName(), asynqdb.PlainError(err.Error()), end.UTC().Format(time.RFC3339))
	if s.unable.mayWarn(a.statsTask.Type) {
		s.log.Warn("jobs wait for a worker that can run them", "type", a.statsTask.Type, "job", a.ID, "queue", a.Queue, "why", why)
	}
	s.deniedAt.Store(now.UnixNano())
	at := now.Add(min(max(now.Sub(since)/4, minUnablePause), maxUnablePause))
	if at.After(end) {
		at = end
	}
	return &putBackError{error: errors.New(why), at: at, denied: hasLane, unableSince: since}
}

// withUnableSince returns an encoded message with the time since which no worker could run the job.
func (a *attempt) withUnableSince(msg []byte, since time.Time) []byte {
	if since.IsZero() {
		return msg
	}
	return asynqdb.WithJobHeader(a.JobID, msg, unableSinceHeader, fmt.Sprint(since.UnixMicro()))
}
