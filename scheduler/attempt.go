package scheduler

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/stats"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// job names a job in asynq: an ID is unique in its queue only.
type job = throttle.JobID

// attempt is one try to run a job, from the dequeue that fetched the job until asynq has written
// how the try ended. A denied job that is fetched again is another attempt here, though asynq does
// not count the denied one.
type attempt struct {
	job
	scope     *scope      // nil until decode
	msg       string      // as asynq stores it
	task      *asynq.Task // nil if the message cannot be read, which asynq reports
	statsTask stats.Task  // the queue and type that count the job in the stats
	back      bool        // whether the job was put back since it was enqueued
	unique    bool        // whether the job has a Unique lock
	retried   int         // failures so far
	maxRetry  int
	jobTimeout
	position queuePosition
	isNew    bool // whether the job has never been put back, and has never failed
	lease    asynqdb.LeaseID
	leaseEnd time.Time // when asynq's lease ends, unless asynq extends it
	restarts int       // how often the permits were too old before the handler started

	done     chan struct{} // closed when the next five fields are set; nil before the request
	rule     Rule
	decision waitdb.Decision // zero if the job needs no permits
	err      error           // why the job does not run, or nil
	sentAt   time.Time       // when the request was sent
	startAt  time.Time       // when the handler may start

	// inFlight.mu guards the next three fields.
	taken bool      // whether the handler has started, or the attempt was given up
	slot  bool      // whether the attempt occupies a worker slot
	until time.Time // when an attempt without a slot is forgotten

	began   time.Time  // when the handler started
	reports sync.Mutex // held while a report changes decision.Taken

	mu      sync.Mutex    // guards the rest
	latency time.Duration // of the last ReportLatency
	end     attemptEnd
}

// attemptEnd is what the server must know when asynq writes the end of an attempt.
type attemptEnd struct {
	queuedAt time.Time // when the job first joined its lane; zero until the handler runs
	keep     bool      // whether to record the attempt: it or an earlier attempt of the job failed
	took     time.Duration
	retry    *RetryPolicy // of the job's rule; nil until the handler runs
	// putBack is set if the job is put back. asynq would archive a job on its last attempt whatever
	// its error is, so redisClient puts the job back instead.
	putBack *putBackError
}

// decode parses the message of a fetched job. The task stays nil if the message is not valid.
func (s *Server) decode(a *attempt) {
	m, err := asynqdb.ParseMessage([]byte(a.msg))
	if err != nil {
		return
	}
	a.scope, a.task = s.scopeOf(a.Queue), m.Task()
	a.statsTask = stats.Task{Queue: a.Queue, Type: a.task.Type()}
	a.unique, a.retried, a.maxRetry, a.jobTimeout = m.Unique, m.Retried, m.MaxRetry, jobTimeoutOf(m)
	if a.isNew = !a.back && m.FailedAt == 0; !a.isNew {
		a.position = queuePositionOf(a.job, a.task)
	}
}

// updateEnd changes the attempt's end.
func (a *attempt) updateEnd(change func(*attemptEnd)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change(&a.end)
}

// ending returns the attempt's end, as far as it is known.
func (a *attempt) ending() attemptEnd {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.end
}

// isDone reports whether the request for permits has a result.
func (a *attempt) isDone() bool {
	select {
	case <-a.done:
		return true
	default:
		return false
	}
}

// outcome is how asynq counts an attempt that returns err. The order of the cases is asynq's: a
// passed deadline comes before the handler's error, and RevokeTask comes before SkipRetry.
func (a *attempt) outcome(ctx context.Context, err error) stats.End {
	later, isLater := errors.AsType[*putBackError](err)
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return a.failure()
	case err == nil:
		return stats.Done
	case isLater && later.denied:
		return stats.PutBack
	case isLater:
		return stats.RetryAfter
	case errors.Is(err, asynq.RevokeTask):
		return stats.Dropped
	case errors.Is(err, asynq.SkipRetry):
		return stats.Archived
	}
	return a.failure()
}

func (a *attempt) failure() stats.End {
	if a.retried >= a.maxRetry {
		return stats.Archived
	}
	return stats.Failed
}

// expiredError returns the error of a job whose deadline has passed, or nil.
func (a *attempt) expiredError() error {
	if a.deadline.IsZero() || time.Now().Before(a.deadline) {
		return nil
	}
	err := fmt.Errorf("too late: its deadline %s has passed", a.deadline.UTC().Format(time.RFC3339))
	if a.rule.OnMaxWait == ActionDrop {
		return fmt.Errorf("%w: %w", err, asynq.RevokeTask)
	}
	return finalError{err}
}

// retryError turns a handler's error into an error for asynq. If the error wraps several of ours
// and asynq's, PutBackAs takes precedence over SkipRetry and RevokeTask, and those two take
// precedence over RetryAfter: see IsPutBack. Without a policy the program's RetryDelayFunc decides.
// After the policy's last retry retryError returns a finalError, because asynq knows only the job's
// own MaxRetry.
func (a *attempt) retryError(err error) error {
	if as, ok := errors.AsType[*putBackAs](err); ok {
		return &putBackError{error: err, at: time.Now(), as: as}
	}
	if err == nil || ends(err) {
		return err
	}
	if d, ok := errors.AsType[retryAfter](err); ok {
		return &putBackError{error: err, at: time.Now().Add(time.Duration(d))}
	}
	if a.rule.Retry == nil {
		return err
	}
	class := a.rule.Retry.class(err)
	if class.MaxRetry != nil && a.retried >= *class.MaxRetry || a.retried >= a.maxRetry {
		return finalError{err}
	}
	return delayedError{err, class.Delay(a.retried)}
}
