package scheduler

import (
	"context"
	"time"

	"github.com/hibiken/asynq"
)

// asynq calls the functions of its Config in goroutines in which a panic ends the process,
// and waits for them when it shuts down. In these each has a goroutine of its own. Instead of a
// result that a function did not give, the server takes what asynq takes without the function.

// isFailure guards an IsFailure; nil means that each error is a failure.
func (p *userCode) isFailure(next func(error) bool) func(error) bool {
	if next == nil {
		return func(err error) bool { return err != nil }
	}
	return func(err error) bool {
		is, failed := ask(p, "IsFailure", func() (bool, error) { return next(err), nil })
		return is || failed != nil && err != nil
	}
}

// retryDelay guards a RetryDelayFunc; nil means asynq's own.
func (p *userCode) retryDelay(next asynq.RetryDelayFunc) asynq.RetryDelayFunc {
	if next == nil {
		return asynq.DefaultRetryDelayFunc
	}
	return func(n int, err error, task *asynq.Task) time.Duration {
		delay, failed := ask(p, "RetryDelayFunc", func() (time.Duration, error) { return next(n, err, task), nil })
		if failed != nil {
			return asynq.DefaultRetryDelayFunc(n, err, task)
		}
		return delay
	}
}

// errorHandler guards an ErrorHandler, if there is one.
func (p *userCode) errorHandler(next asynq.ErrorHandler) asynq.ErrorHandler {
	if next == nil {
		return nil
	}
	return asynq.ErrorHandlerFunc(func(ctx context.Context, task *asynq.Task, err error) {
		_, _ = ask(p, "ErrorHandler", func() (struct{}, error) { next.HandleError(ctx, task, err); return struct{}{}, nil })
	})
}

// aggregator guards a GroupAggregator, if there is one. Without its task asynq enqueues
// nothing, and keeps the group for another try.
func (p *userCode) aggregator(next asynq.GroupAggregator) asynq.GroupAggregator {
	if next == nil {
		return nil
	}
	return asynq.GroupAggregatorFunc(func(group string, tasks []*asynq.Task) *asynq.Task {
		task, _ := ask(p, "GroupAggregator", func() (*asynq.Task, error) { return next.Aggregate(group, tasks), nil })
		return task
	})
}

// healthCheck guards a HealthCheckFunc, if there is one.
func (p *userCode) healthCheck(next func(error)) func(error) {
	if next == nil {
		return nil
	}
	return func(err error) {
		_, _ = ask(p, "HealthCheckFunc", func() (struct{}, error) { next(err); return struct{}{}, nil })
	}
}
