package scheduler

import (
	"context"
	"errors"
	"time"

	"github.com/hibiken/asynq"
)

// The polls that Config sets unless the program did. asynq's own, one second
// and five, would let permits lie idle.
const (
	taskCheckInterval        = 10 * time.Millisecond
	delayedTaskCheckInterval = time.Second
)

// minGrant is how long permits are kept for a called job that has not come: as
// long as the polls of its queue may take, and no longer than a job that nobody
// takes should hold up others.
const minGrant = 250 * time.Millisecond

// Config returns an asynq configuration in which a denial is no failure: it
// spends no attempt, moves no failure statistics, does not reach the program's
// ErrorHandler, and waits as long as the limiter said. Everything that the
// program set is kept and asked about real failures as before.
func (t *Throttler) Config(c asynq.Config) asynq.Config {
	if c.TaskCheckInterval <= 0 {
		c.TaskCheckInterval = taskCheckInterval
	}
	if c.DelayedTaskCheckInterval <= 0 {
		c.DelayedTaskCheckInterval = delayedTaskCheckInterval
	}
	t.grant.Store(int64(max(minGrant, 3*c.TaskCheckInterval)))
	c.IsFailure = isFailure(c.IsFailure)
	c.RetryDelayFunc = retryDelay(c.RetryDelayFunc)
	if c.ErrorHandler != nil {
		c.ErrorHandler = failuresOnly{c.ErrorHandler}
	}
	return c
}

// isFailure counts neither denials nor crashes of the worker: a crash would
// otherwise use up a job's spare retry.
func isFailure(next func(error) bool) func(error) bool {
	if next == nil {
		next = func(err error) bool { return err != nil }
	}
	return func(err error) bool {
		if _, denied := errors.AsType[*deniedError](err); denied || errors.Is(err, asynq.ErrLeaseExpired) {
			return false
		}
		return next(cause(err))
	}
}

// retryDelay asks the program's own function first, the rule's policy second.
func retryDelay(next asynq.RetryDelayFunc) asynq.RetryDelayFunc {
	return func(n int, err error, task *asynq.Task) time.Duration {
		if denied, ok := errors.AsType[*deniedError](err); ok {
			return denied.delay
		}
		if next != nil {
			return next(n, cause(err), task)
		}
		if failed, ok := errors.AsType[*failedError](err); ok {
			return failed.delay
		}
		return RetryPolicy{}.Delay(n, err)
	}
}

// failuresOnly keeps denials from the program's error handler.
type failuresOnly struct{ next asynq.ErrorHandler }

func (h failuresOnly) HandleError(ctx context.Context, task *asynq.Task, err error) {
	if _, denied := errors.AsType[*deniedError](err); denied || errors.Is(err, errReplaced) {
		return
	}
	h.next.HandleError(ctx, task, cause(err))
}
