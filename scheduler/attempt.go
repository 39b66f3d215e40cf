package scheduler

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/stats"
)

// attempt is one try of asynq's to run a job: what is known of it before its
// handler runs. It does not change once its rule is found, and is copied only after that.
// A job that is denied and comes back is a new attempt here, though asynq counts
// none.
type attempt struct {
	job
	task     *asynq.Task
	leaseID  asynqdb.LeaseID // under which this server has the job
	rule     Rule
	retried  int // failures so far
	maxRetry int
	position queuePosition
	isNew    bool // in asynq: it was not put back since it was enqueued
	jobTimeout
}

// name is what the job is counted by.
func (a *attempt) name() stats.Task { return stats.Task{Queue: a.Queue, Type: a.task.Type()} }

// end is how an attempt ends, in asynq, that returns err. The order of the cases is
// asynq's: a context that is over comes before all that the handler says, and a
// job that is dropped is never archived.
func (a *attempt) end(ctx context.Context, err error) stats.End {
	later, isLater := errors.AsType[*putBackError](err)
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded): // then asynq heard nothing of err
		return a.failed()
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
	return a.failed()
}

// failed is how a failed attempt ends.
func (a *attempt) failed() stats.End {
	if a.retried >= a.maxRetry {
		return stats.Archived
	}
	return stats.Failed
}

// late is why a job cannot run that comes after its deadline, or nil.
func (a attempt) late() error {
	if a.deadline.IsZero() || time.Now().Before(a.deadline) {
		return nil
	}
	err := fmt.Errorf("too late: it was to be done by %s", a.deadline.UTC().Format(time.RFC3339))
	if a.rule.OnMaxWait == ActionDrop {
		return fmt.Errorf("%w: %w", err, asynq.RevokeTask)
	}
	return finalError{err}
}

// judge turns a handler's error into what asynq should make of it. Of an error that
// is several things PutBackAs counts first, then SkipRetry and RevokeTask, then
// RetryAfter: see IsPutBack. Blocked has been looked at before. A nil policy leaves
// the error as it is, for the program's own RetryDelayFunc. A policy's last retry
// ends with a finalError, since asynq knows only the job's own MaxRetry.
func (a attempt) retryError(err error) error {
	if as, ok := errors.AsType[*putBackAs](err); ok {
		return &putBackError{error: err, at: time.Now(), as: as}
	}
	if err == nil || ends(err) {
		return err
	}
	if d, ok := errors.AsType[retryAfter](err); ok {
		return &putBackError{error: err, at: time.Now().Add(time.Duration(d))}
	}
	policy := a.rule.Retry
	if policy == nil {
		return err
	}
	if a.retried >= policy.maxRetry(a.maxRetry, err) {
		return finalError{err}
	}
	return spacedError{err, policy.Delay(a.retried, err)}
}

// unwanted is why a job is not begun that may run, or nil: its deadline has passed while
// it asked, or asynq has given the attempt up, as when the job's lease ended.
func (a attempt) unwanted(ctx context.Context) error {
	if err := a.late(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return &putBackError{error: err, at: time.Now().Add(time.Second), denied: true}
	}
	return nil
}
