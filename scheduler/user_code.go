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

// giveUp ends the wait of all calls, and of those that follow.
func (p *userCode) giveUp() { p.once.Do(func() { close(p.gone) }) }

// panicError is the error of a function that panicked.
type panicError struct {
	what  string
	value any
}

// Error says what panicked, and with which value.
func (e *panicError) Error() string { return fmt.Sprintf("%s panicked: %v", e.what, e.value) }

// call calls f, which is code of the program's. If f panics or ends its goroutine, that is the
// error. When a shutdown has waited long enough, call returns an error and leaves f running.
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

// brokenContext replaces a BaseContext that the program could not make. It has ended, so asynq
// fails the job with its error, and calls no handler.
type brokenContext struct {
	context.Context
	err error
}

// Done implements context.Context.
func (brokenContext) Done() <-chan struct{} { return over }

// Err implements context.Context.
func (c brokenContext) Err() error { return c.err }

// over is closed.
var over = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

const (
	delayedTaskCheckInterval = time.Second // asynq's own, 5 s, would let permits lie idle

	// noPause is how long asynq sleeps between two looks at its queues: the second one blocks, see
	// markerWaiter. Zero would mean asynq's own second.
	noPause = time.Microsecond
)

// config is the program's configuration for asynq, in which putting a job back is no failure: it
// moves no statistics, and none of the program's functions is called for it. If one of the functions
// gives no result, the server does what asynq does without the function.
//
// asynq calls IsFailure and RetryDelayFunc from its recoverer, too, about jobs whose worker died, and
// never for a job on its last attempt: that job it archives whatever the error is, and redisClient
// puts it back instead.
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
	c.IsFailure = s.userCode.isFailure(c.IsFailure)
	c.RetryDelayFunc = s.userCode.retryDelay(c.RetryDelayFunc)
	c.ErrorHandler = s.userCode.errorHandler(c.ErrorHandler)
	if next := c.GroupAggregator; next != nil { // without its task asynq keeps the group for another try
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

// isFailure keeps jobs that are put back out of the failure statistics: for asynq an error that is
// no failure spends no attempt either.
func (p *userCode) isFailure(next func(error) bool) func(error) bool {
	return func(err error) bool {
		if _, ok := errors.AsType[*putBackError](err); ok || next == nil {
			return !ok && err != nil
		}
		is, failed := call(p, "IsFailure", func() (bool, error) { return next(cause(err)), nil })
		return is || failed != nil && err != nil
	}
}

// retryDelay takes the delay of the job's rule, which attempt.retryError has put into the error, and
// otherwise the program's. For a job that is put back the delay is ignored: redisClient writes the
// time itself.
func (p *userCode) retryDelay(next asynq.RetryDelayFunc) asynq.RetryDelayFunc {
	return func(n int, err error, task *asynq.Task) time.Duration {
		if later, ok := errors.AsType[*putBackError](err); ok {
			return time.Until(later.at)
		}
		if spaced, ok := errors.AsType[spacedError](err); ok {
			return spaced.delay
		}
		if next != nil {
			delay, failed := call(p, "RetryDelayFunc", func() (time.Duration, error) { return next(n, cause(err), task), nil })
			if failed == nil {
				return delay
			}
		}
		return asynq.DefaultRetryDelayFunc(n, err, task)
	}
}

// errorHandler keeps errors that are no failure from the program's ErrorHandler, which may be nil.
// It gets the error of a job that can never run as an ImpossibleError. asynq shows its own errors
// here before it stores their text.
func (p *userCode) errorHandler(next asynq.ErrorHandler) asynq.ErrorHandler {
	return asynq.ErrorHandlerFunc(func(ctx context.Context, task *asynq.Task, err error) {
		mendPanic(err)
		if _, ok := errors.AsType[*putBackError](err); !ok && next != nil {
			_, _ = call(p, "ErrorHandler", func() (struct{}, error) { next.HandleError(ctx, task, cause(err)); return struct{}{}, nil })
		}
	})
}
