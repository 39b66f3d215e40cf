package scheduler

import (
	"context"
	"errors"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/safelog"
	"github.com/headgate/headgate/internal/waitdb"
)

// What a Server sets unless the program did. asynq's own, five seconds for delayed jobs,
// would let permits lie idle.
const (
	// minGrant is how long permits are kept for a called job that has not come:
	// as long as the polls of its queue may take, and no longer than a job that
	// nobody takes should hold up others.
	minGrant = waitdb.DefaultGrant

	delayedTaskCheckInterval = time.Second

	// shutdownTimeout is asynq's own, for a Config that says none.
	shutdownTimeout = 8 * time.Second

	// noPause is how long asynq is to sleep between two looks at its queues: the second
	// waits, see markerWaiter. Zero would be its own second.
	noPause = time.Microsecond
)

// config is the program's configuration for asynq, in which putting a job back
// is no failure: it moves no statistics, and none of the program's functions
// hears of it. About real failures they are asked as before.
//
// asynq asks IsFailure and RetryDelayFunc from its recoverer too, about jobs whose
// worker died, and never of a job on its last attempt: that it archives whatever
// the error is, which is why redisClient is there.
func (s *Server) config(c asynq.Config) asynq.Config {
	c.TaskCheckInterval = noPause
	if c.DelayedTaskCheckInterval <= 0 {
		c.DelayedTaskCheckInterval = delayedTaskCheckInterval
	}
	if c.Logger == nil {
		c.Logger = newStderr()
	}
	c.Logger = asynqLog{safelog.Asynq(c.Logger), &s.inFlight}
	c.BaseContext = runContexts(s.base)
	c.IsFailure = isFailure(s.userCode.isFailure(c.IsFailure))
	c.RetryDelayFunc = retryDelay(s.userCode.retryDelay(c.RetryDelayFunc))
	c.ErrorHandler = failuresOnly{s.userCode.errorHandler(c.ErrorHandler)}
	c.GroupAggregator = s.userCode.aggregator(c.GroupAggregator)
	c.HealthCheckFunc = s.userCode.healthCheck(c.HealthCheckFunc)
	return c
}

// isFailure keeps jobs that are put back out of the failure statistics. For asynq
// an error that is no failure spends no attempt either.
func isFailure(next func(error) bool) func(error) bool {
	return func(err error) bool {
		if _, ok := errors.AsType[*putBackError](err); ok {
			return false
		}
		return next(cause(err))
	}
}

// retryDelay takes the delay of the job's rule, which attempt.retryError has put into the error,
// and otherwise asks the program's own function. For a job that is put back the delay is ignored:
// redisClient writes the moment instead.
func retryDelay(next asynq.RetryDelayFunc) asynq.RetryDelayFunc {
	return func(n int, err error, task *asynq.Task) time.Duration {
		if later, ok := errors.AsType[*putBackError](err); ok {
			return time.Until(later.at)
		}
		if spaced, ok := errors.AsType[spacedError](err); ok {
			return spaced.delay
		}
		return next(n, err, task)
	}
}

// failuresOnly keeps from the program's error handler what is no failure. Jobs that
// can never have their permits are failures: it hears of them as a ImpossibleError. It is
// also where asynq shows its own errors before it stores their text.
type failuresOnly struct{ next asynq.ErrorHandler } // nil if the program has none

// HandleError implements asynq.ErrorHandler.
func (h failuresOnly) HandleError(ctx context.Context, task *asynq.Task, err error) {
	mendPanic(err)
	if _, ok := errors.AsType[*putBackError](err); !ok && h.next != nil {
		h.next.HandleError(ctx, task, cause(err))
	}
}
