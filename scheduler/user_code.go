package scheduler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/safelog"
)

// The program's rules and the functions of asynq's Config may panic, end their goroutine, or never
// return. asynq calls them in goroutines in which a panic ends the process, and waits for them when
// it shuts down. Therefore each call has a goroutine of its own.

// panicError is the error of a function that panicked.
type panicError struct {
	what  string
	value any
}

// Error implements error.
func (e *panicError) Error() string { return fmt.Sprintf("%s panicked: %v", e.what, e.value) }

// result is what a function of the program returned.
type result[T any] struct {
	value T
	err   error
}

// goCall calls f, a function of the program, in a goroutine of its own. The channel receives its
// result, or an error if f panics or ends its goroutine.
func goCall[T any](log *slog.Logger, what string, f func() (T, error)) <-chan result[T] {
	returned := make(chan result[T], 1)
	go func() {
		r := result[T]{err: fmt.Errorf("%s ended its goroutine and did not return", what)}
		defer func() {
			if value := recover(); value != nil {
				log.Error("the program's code panicked", "function", what, "panic", value, "stack", string(debug.Stack()))
				r.err = &panicError{what, value}
			}
			returned <- r
		}()
		r.value, r.err = f()
	}()
	return returned
}

// call calls f, a function of the program, and returns its result. When a shutdown no longer waits
// for the program's code, call returns an error and leaves f running.
func call[T any](s *Server, what string, f func() T) (T, error) {
	r, ok := receive(s.patience, goCall(s.log, what, func() (T, error) { return f(), nil }))
	if !ok {
		r.err = fmt.Errorf("%s has not returned, and the server shuts down", what)
	}
	return r.value, r.err
}

// receive returns a value from the channel, or false if the context ends first.
func receive[T any](ctx context.Context, values <-chan T) (value T, ok bool) {
	select {
	case value = <-values:
		return value, true
	default: // a value that is ready is returned even if the context has ended
	}
	select {
	case value = <-values:
		return value, true
	case <-ctx.Done():
		return value, false
	}
}

const (
	delayedTaskCheckInterval = time.Second // with asynq's default, 5 s, permits would lie idle

	// noPause is asynq's TaskCheckInterval here. asynq need not sleep, because dequeue itself
	// blocks: see markerWaiter. Zero would mean asynq's default of a second.
	noPause = time.Microsecond
)

// config returns the program's configuration as asynq gets it. With the result, a put-back is no
// failure and calls none of the program's functions. If a function of the program fails, the server
// does what asynq does without that function.
func (s *Server) config(c asynq.Config) asynq.Config {
	program := c
	s.baseContext = func() (context.Context, error) {
		if program.BaseContext == nil {
			return context.Background(), nil
		}
		ctx, err := call(s, "BaseContext", program.BaseContext)
		if err == nil && ctx == nil {
			err = errors.New("BaseContext returned nil")
		}
		return ctx, err
	}
	c.BaseContext = s.newRunContext
	c.TaskCheckInterval = noPause
	if c.DelayedTaskCheckInterval <= 0 {
		c.DelayedTaskCheckInterval = delayedTaskCheckInterval
	}
	if c.Logger == nil {
		c.Logger = newStderr()
	}
	c.Logger = asynqLog{safelog.Asynq(c.Logger), &s.inFlight}
	c.IsFailure = func(err error) bool {
		if _, ok := errors.AsType[*putBackError](err); ok || program.IsFailure == nil {
			return !ok && err != nil
		}
		is, failed := call(s, "IsFailure", func() bool { return program.IsFailure(withoutDelay(err)) })
		return is || failed != nil && err != nil
	}
	c.RetryDelayFunc = func(n int, err error, task *asynq.Task) time.Duration {
		if later, ok := errors.AsType[*putBackError](err); ok {
			return time.Until(later.at) // redisClient ignores this delay and uses later.at
		}
		if own, ok := errors.AsType[*attemptError](err); ok && own.delay != nil {
			return *own.delay
		}
		if program.RetryDelayFunc != nil {
			delay, failed := call(s, "RetryDelayFunc", func() time.Duration { return program.RetryDelayFunc(n, withoutDelay(err), task) })
			if failed == nil {
				return delay
			}
		}
		return asynq.DefaultRetryDelayFunc(n, err, task)
	}
	if c.ErrorHandler != nil {
		c.ErrorHandler = asynq.ErrorHandlerFunc(func(ctx context.Context, task *asynq.Task, err error) {
			if _, ok := errors.AsType[*putBackError](err); !ok {
				_, _ = call(s, "ErrorHandler", func() any { program.ErrorHandler.HandleError(ctx, task, withoutDelay(err)); return nil })
			}
		})
	}
	if c.GroupAggregator != nil { // if it fails, asynq keeps the group and tries again
		c.GroupAggregator = asynq.GroupAggregatorFunc(func(group string, tasks []*asynq.Task) *asynq.Task {
			task, _ := call(s, "GroupAggregator", func() *asynq.Task { return program.GroupAggregator.Aggregate(group, tasks) })
			return task
		})
	}
	if c.HealthCheckFunc != nil {
		c.HealthCheckFunc = func(err error) {
			_, _ = call(s, "HealthCheckFunc", func() any { program.HealthCheckFunc(err); return nil })
		}
	}
	return c
}
