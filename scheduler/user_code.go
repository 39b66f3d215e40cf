package scheduler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/safelog"
)

// userCode calls the code that the program has given to a server: its rules and the functions of
// asynq's Config. Such code may panic, end its goroutine, or never return. asynq calls it in
// goroutines in which a panic ends the process, and waits for it when it shuts down. Therefore each
// call has a goroutine of its own.
type userCode struct {
	log  *slog.Logger
	gone chan struct{} // closed when a shutdown no longer waits for the program's code
	once sync.Once
}

func newUserCode(log *slog.Logger) *userCode { return &userCode{log: log, gone: make(chan struct{})} }

// giveUp makes current and later calls return without waiting.
func (p *userCode) giveUp() { p.once.Do(func() { close(p.gone) }) }

// panicError is the error of a function that panicked.
type panicError struct {
	what  string
	value any
}

// Error implements error.
func (e *panicError) Error() string { return fmt.Sprintf("%s panicked: %v", e.what, e.value) }

// call calls f, a function of the program, in a goroutine of its own. If f panics or ends its
// goroutine, call returns an error. After giveUp it returns an error and leaves f running.
func call[T any](p *userCode, what string, f func() (T, error)) (T, error) {
	type end struct {
		result T
		err    error
	}
	ended := make(chan end, 1)
	go func() {
		e := end{err: fmt.Errorf("%s ended its goroutine and did not return", what)}
		defer func() {
			if value := recover(); value != nil {
				e.err = p.panicked(what, value)
			}
			ended <- e
		}()
		e.result, e.err = f()
	}()
	select {
	case e := <-ended:
		return e.result, e.err
	case <-p.gone:
		var none T
		return none, fmt.Errorf("%s has not returned, and the server shuts down", what)
	}
}

// panicked logs a panic of the program's code with its stack. It must be called while the stack is
// still that of the panic.
func (p *userCode) panicked(what string, value any) error {
	p.log.Error("the program's code panicked", "function", what, "panic", value, "stack", string(debug.Stack()))
	return &panicError{what, value}
}

// baseContext returns the program's BaseContext, or why there is none.
func (p *userCode) baseContext(next func() context.Context) (context.Context, error) {
	if next == nil {
		return context.Background(), nil
	}
	ctx, err := call(p, "BaseContext", func() (context.Context, error) { return next(), nil })
	if err == nil && ctx == nil {
		err = errors.New("BaseContext returned nil")
	}
	return ctx, err
}

const (
	delayedTaskCheckInterval = time.Second // asynq's own, 5 s, would let permits lie idle

	// noPause is asynq's TaskCheckInterval here. asynq need not sleep, because dequeue itself
	// blocks: see markerWaiter. Zero would mean asynq's default of a second.
	noPause = time.Microsecond
)

// config returns the program's configuration as asynq gets it. With it, a put-back is no failure
// and calls none of the program's functions. If a function fails, the server does what asynq does
// without that function.
//
// asynq also calls IsFailure and RetryDelayFunc for jobs whose worker died. It calls neither for a
// job on its last attempt, but archives it whatever the error is: redisClient puts the job back
// instead.
func (s *Server) config(c asynq.Config) asynq.Config {
	c.TaskCheckInterval = noPause
	if c.DelayedTaskCheckInterval <= 0 {
		c.DelayedTaskCheckInterval = delayedTaskCheckInterval
	}
	if c.Logger == nil {
		c.Logger = newStderr()
	}
	c.Logger = asynqLog{safelog.Asynq(c.Logger), &s.inFlight}
	c.BaseContext = runContexts(s.baseContext)
	c.IsFailure = s.userCode.isFailure(c.IsFailure)
	c.RetryDelayFunc = s.userCode.retryDelay(c.RetryDelayFunc)
	c.ErrorHandler = s.userCode.errorHandler(c.ErrorHandler)
	if next := c.GroupAggregator; next != nil { // if it fails, asynq keeps the group and tries again
		c.GroupAggregator = asynq.GroupAggregatorFunc(func(group string, tasks []*asynq.Task) *asynq.Task {
			task, _ := call(s.userCode, "GroupAggregator", func() (*asynq.Task, error) { return next.Aggregate(group, tasks), nil })
			return task
		})
	}
	if next := c.HealthCheckFunc; next != nil {
		c.HealthCheckFunc = func(err error) {
			_, _ = call(s.userCode, "HealthCheckFunc", func() (struct{}, error) { next(err); return struct{}{}, nil })
		}
	}
	return c
}

// isFailure reports false for jobs that are put back: then asynq counts neither a failure nor an
// attempt.
func (p *userCode) isFailure(next func(error) bool) func(error) bool {
	return func(err error) bool {
		if _, ok := errors.AsType[*putBackError](err); ok || next == nil {
			return !ok && err != nil
		}
		is, failed := call(p, "IsFailure", func() (bool, error) { return next(withoutDelay(err)), nil })
		return is || failed != nil && err != nil
	}
}

// retryDelay returns the delay of the job's rule, which attempt.retryError has put into the error,
// or else the delay of the program's RetryDelayFunc. redisClient ignores the delay of a job that is
// put back.
func (p *userCode) retryDelay(next asynq.RetryDelayFunc) asynq.RetryDelayFunc {
	return func(n int, err error, task *asynq.Task) time.Duration {
		if later, ok := errors.AsType[*putBackError](err); ok {
			return time.Until(later.at)
		}
		if delayed, ok := errors.AsType[delayedError](err); ok {
			return delayed.delay
		}
		if next != nil {
			delay, failed := call(p, "RetryDelayFunc", func() (time.Duration, error) { return next(n, withoutDelay(err), task), nil })
			if failed == nil {
				return delay
			}
		}
		return asynq.DefaultRetryDelayFunc(n, err, task)
	}
}

// errorHandler calls the program's ErrorHandler, if any, for failures only. The error of a job that
// can never run is an ImpossibleError.
func (p *userCode) errorHandler(next asynq.ErrorHandler) asynq.ErrorHandler {
	return asynq.ErrorHandlerFunc(func(ctx context.Context, task *asynq.Task, err error) {
		if _, ok := errors.AsType[*putBackError](err); !ok && next != nil {
			_, _ = call(p, "ErrorHandler", func() (struct{}, error) { next.HandleError(ctx, task, withoutDelay(err)); return struct{}{}, nil })
		}
	})
}
