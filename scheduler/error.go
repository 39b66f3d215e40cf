package scheduler

import (
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/throttle"
)

// deniedError puts a job back: it is not a failure.
type deniedError struct {
	decision throttle.Decision
	delay    time.Duration
}

func (e *deniedError) Error() string { return e.decision.String() }

// failedError is a handler's own error with the delay that its rule's policy
// sets before the next attempt.
type failedError struct {
	error
	delay time.Duration
}

func (e *failedError) Unwrap() error { return e.error }

// cause is the error that the program's own handler returned.
func cause(err error) error {
	if failed, ok := errors.AsType[*failedError](err); ok {
		return failed.error
	}
	return err
}

// RefusedError is why a job was archived without running: it can never have
// its permits, or not in the time it has. errors.Is finds asynq.SkipRetry.
type RefusedError struct {
	Decision throttle.Decision
}

// Error says which limit refused and why.
func (e *RefusedError) Error() string { return e.Decision.String() }

// Unwrap makes asynq archive the job at once.
func (e *RefusedError) Unwrap() error { return asynq.SkipRetry }

// errReplaced finishes a job whose twin took its place in the queue.
var errReplaced = fmt.Errorf("a twin with a spare retry waits in its place: %w", asynq.RevokeTask)

// errDropped deletes a job, as its rule says.
var errDropped = fmt.Errorf("dropped: %w", asynq.RevokeTask)
