// Package usercode calls functions of the program that uses this module. Such a function may panic,
// end its goroutine or never return. If it ran in a goroutine of this module or of asynq, a panic
// would end the process. Therefore each call has a goroutine of its own.
package usercode

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"
)

// PanicError is the error of a function that panicked.
type PanicError struct {
	Value any
	text  string
}

// Error implements error.
func (e *PanicError) Error() string { return e.text }

// Result is what a function returned.
type Result[T any] struct {
	Value T
	Err   error
}

// Go calls f in a goroutine of its own. The channel receives the result of f, or an error if f
// panics or ends its goroutine. The parameter what names f in errors and in the log.
func Go[T any](log *slog.Logger, what string, f func() (T, error)) <-chan Result[T] {
	returned := make(chan Result[T], 1)
	go func() {
		r := Result[T]{Err: fmt.Errorf("%s ended its goroutine and did not return", what)}
		defer func() {
			if value := recover(); value != nil {
				log.Error("the program's code panicked", "function", what, "panic", value, "stack", string(debug.Stack()))
				r.Err = &PanicError{value, fmt.Sprintf("%s panicked: %v", what, value)}
			}
			returned <- r
		}()
		r.Value, r.Err = f()
	}()
	return returned
}

// Call calls f as Go does, and returns the result. If f has not returned after the time longest, or
// when ctx ends, Call returns an error and leaves f running.
func Call[T any](ctx context.Context, longest time.Duration, log *slog.Logger, what string, f func() (T, error)) (T, error) {
	wait, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	r, ok := Receive(wait, Go(log, what, f))
	if !ok {
		r.Err = fmt.Errorf("%s has not returned: %w", what, wait.Err())
		log.Error("the program's code has not returned and counts as failed", "function", what, "error", wait.Err())
	}
	return r.Value, r.Err
}

// Receive returns a value from the channel, or false if the context ends first.
func Receive[T any](ctx context.Context, values <-chan T) (value T, ok bool) {
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
