package scheduler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
)

// userCode is the code that the program has given to a server: its rules and the
// functions of asynq's Config. Such code may panic, end its goroutine, or never return.
// A server calls it in goroutines of its own and of asynq, so each of these would end the
// process, stop the server, or keep it from shutting down.
type userCode struct {
	log  *slog.Logger
	gone chan struct{} // closed when a shutdown waits for the program's code no longer
	once sync.Once
}

func newUserCode(log *slog.Logger) *userCode { return &userCode{log: log, gone: make(chan struct{})} }

// giveUp ends the wait of all calls that ask and of those that follow.
func (p *userCode) giveUp() { p.once.Do(func() { close(p.gone) }) }

// panicError is why a function of the program's has no result: it panicked.
type panicError struct {
	what  string
	value any
}

// Error says what panicked, and with which value.
func (e *panicError) Error() string { return fmt.Sprintf("%s panicked: %v", e.what, e.value) }

// ask calls f, which is code of the program's, in a goroutine of its own. If f panics or ends
// its goroutine, that is the error. Once the server has waited for the program's code long enough
// to shut down, ask returns an error and leaves f running.
func ask[T any](p *userCode, what string, f func() (T, error)) (T, error) {
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

// panicked logs a panic of the program's with the place where it happened. It is to be called
// while that is still on the stack.
func (p *userCode) panicked(what string, value any) error {
	p.log.Error("the program's code panicked", "function", what, "panic", value, "stack", string(debug.Stack()))
	return &panicError{what, value}
}

// baseContext returns the program's BaseContext, or why there is none.
func (p *userCode) baseContext(next func() context.Context) (context.Context, error) {
	if next == nil {
		return context.Background(), nil
	}
	ctx, err := ask(p, "BaseContext", func() (context.Context, error) { return next(), nil })
	if err == nil && ctx == nil {
		err = errors.New("BaseContext returned nil")
	}
	return ctx, err
}

// brokenContext is in place of a BaseContext that the program could not make. It is over, so
// asynq fails the job with its error, and calls no handler.
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
