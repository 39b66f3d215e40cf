package scheduler

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/safelog"
	"github.com/headgate/headgate/internal/usercode"
	"github.com/headgate/headgate/throttle"
)

// asynq calls the functions of its Config, and the methods of the errors that handlers return, in
// goroutines in which a panic ends the process, and waits for them when it shuts down. Therefore the
// server calls the program's functions with package usercode. The handler's goroutine, in which
// asynq recovers from panics, calls the methods of the handler's error, and asynq gets a sealedError
// in place of that error.

const (
	// maxCall is the longest wait for a function of the program on which a worker slot waits. It is
	// shorter than what is left of the job's lease then, because asynq's write-back ends with the
	// lease.
	maxCall = 10 * time.Second
	// maxAggregation is the longest wait for a GroupAggregator. asynq rejects a later result.
	maxAggregation = 2 * time.Minute
	// maxEnd is the longest time from the return of a handler until asynq gets the job's error. The
	// reports to the limiter, up to reportTimeout, are a part of it.
	maxEnd = time.Minute
)

// call calls f, a function of the program, and returns its result. It waits at most for maxCall,
// and until a shutdown no longer waits for the program's code.
func call[T any](s *Server, what string, f func() T) (T, error) {
	return usercode.Call(s.patience, maxCall, s.log, what, func() (T, error) { return f(), nil })
}

// sealedError is an error of the program as asynq and the server's other goroutines get it. Its
// methods call no code of the program.
type sealedError struct {
	program error   // for the functions of the program
	text    string  // valid UTF-8, because asynq stores the text in a protobuf string
	is      []error // the errors among sealedKinds that program matches
}

// sealedKinds are the errors that decide what happens to a job.
var sealedKinds = []error{asynq.SkipRetry, asynq.RevokeTask, throttle.ErrUnavailable, ErrUnable, asynq.ErrHandlerNotFound}

// Error implements error.
func (e *sealedError) Error() string { return e.text }

// Is makes the error match the same of sealedKinds as the program's error.
func (e *sealedError) Is(target error) bool { return slices.Contains(e.is, target) }

// seal returns an error whose methods call no code of the program. A job that is put back is not
// archived or deleted, so its error matches no kind.
func seal(err error) error {
	switch own := err.(type) {
	case nil, *sealedError:
		return err
	case *putBackError:
		own.error = &sealedError{program: own.error, text: storable(own.error.Error())}
		return own
	case *attemptError:
		own.error = seal(own.error)
		return own
	}
	e := &sealedError{program: err, text: storable(err.Error())}
	for _, kind := range sealedKinds {
		if errors.Is(err, kind) {
			e.is = append(e.is, kind)
		}
	}
	return e
}

// forProgram returns the error that the program's functions get in place of a sealed one. It
// unwraps an attemptError that only sets a delay. A final error stays wrapped, so that it matches
// asynq.SkipRetry.
func forProgram(err error) error {
	switch own := err.(type) {
	case *sealedError:
		return own.program
	case *attemptError:
		program := forProgram(own.error)
		if own.final {
			return &attemptError{error: program, final: true}
		}
		return program
	}
	return err
}

// boundEnd ends the attempt if the program's code has not let it end for maxEnd. It is called when
// the handler has returned, because from then on the job's Timeout no longer applies. Methods of the
// handler's error, the rule's retry policy and OpenTelemetry run after that.
func (a *attempt) boundEnd(ctx context.Context) {
	parent, ok := ctx.Value(runContextKey{}).(*runContext)
	if !ok {
		return
	}
	a.endTimer.Store(time.AfterFunc(maxEnd, func() {
		if parent.Err() != nil {
			return // the attempt was canceled before the handler returned
		}
		a.scope.log.Error("the program's code has not returned and counts as failed", "function", "what is called after the handler", "job", a.ID, "queue", a.Queue)
		parent.end(context.DeadlineExceeded)
	}))
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
		is, failed := call(s, "IsFailure", func() bool { return program.IsFailure(forProgram(err)) })
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
			delay, failed := call(s, "RetryDelayFunc", func() time.Duration { return program.RetryDelayFunc(n, forProgram(err), task) })
			if failed == nil {
				return delay
			}
		}
		return asynq.DefaultRetryDelayFunc(n, err, task)
	}
	if c.ErrorHandler != nil {
		c.ErrorHandler = asynq.ErrorHandlerFunc(func(ctx context.Context, task *asynq.Task, err error) {
			if _, ok := errors.AsType[*putBackError](err); !ok {
				_, _ = call(s, "ErrorHandler", func() any { program.ErrorHandler.HandleError(ctx, task, forProgram(err)); return nil })
			}
		})
	}
	if c.GroupAggregator != nil { // if it fails, asynq keeps the group and tries again
		c.GroupAggregator = asynq.GroupAggregatorFunc(func(group string, tasks []*asynq.Task) *asynq.Task {
			task, _ := usercode.Call(s.patience, maxAggregation, s.log, "GroupAggregator", func() (*asynq.Task, error) {
				return program.GroupAggregator.Aggregate(group, tasks), nil
			})
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
