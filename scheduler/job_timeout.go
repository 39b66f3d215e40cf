package scheduler

import (
	"context"
	"errors"
	"time"
)

// disabledOffset is added to the timeout and the deadline of a job that asynq gets, in seconds:
// about 30,000 years. asynq starts its own timer when it fetches a job. That timer would include
// the time for which the job waits for permits, and a job would fail at its deadline before it has
// asked for permits. Therefore the server enforces the original values once the handler has
// started. Original values are smaller, so the server gets an original value back as the remainder
// of a division by disabledOffset.
const disabledOffset = 1_000_000_000_000

// endOf returns when an attempt that starts now must end, or the zero time if the job has neither a
// timeout nor a deadline.
func (a *attempt) endOf(now time.Time) time.Time {
	if end := now.Add(a.timeout); a.timeout > 0 && (a.deadline.IsZero() || end.Before(a.deadline)) {
		return end
	}
	return a.deadline
}

// startTimer starts the timer of a handler. The context that it returns is derived from asynq's
// context and ends at the timeout or the deadline. At that moment asynq abandons the attempt, even
// if the handler has not returned. The function stop ends the timer, and reports whether the
// handler took too long.
func (a *attempt) startTimer(ctx context.Context) (_ context.Context, stop func() (over bool)) {
	over := func() bool { return errors.Is(ctx.Err(), context.DeadlineExceeded) }
	end := a.endOf(a.began)
	if end.IsZero() {
		return ctx, over
	}
	parent, _ := ctx.Value(runContextKey{}).(*runContext)
	ctx, cancel := context.WithDeadline(ctx, end)
	stopTimer := context.AfterFunc(ctx, func() {
		if over() && parent != nil {
			parent.end(context.DeadlineExceeded)
		}
	})
	return ctx, func() bool {
		stopTimer()
		cancel()
		return over()
	}
}

// runContext is the parent of the context that asynq makes for one attempt. asynq abandons an
// attempt when that context ends, and sets its deadline before the handler starts. Because the
// deadline cannot be changed later, the handler's timer ends the parent, with the error of a passed
// deadline.
//
// Its values are those of the program's context and not those of own: package context would find
// own's cancelCtx there, and use its error, Canceled, in place of Err.
type runContext struct {
	context.Context // the program's, with the runContext itself as a value
	own             context.Context
	end             context.CancelCauseFunc // ends own; Err returns the cause
}

// runContextKey is the key under which a runContext is its own value.
type runContextKey struct{}

// newRunContext makes the parent of asynq's context for one attempt from the program's BaseContext.
// If BaseContext fails, the new context has ended already, with that error, so that asynq fails the
// job and calls no handler. The handler of Server.wrap ends the new context when asynq is done with
// the attempt. Without that end, the program's context would keep a reference to the new one.
func (s *Server) newRunContext() context.Context {
	base, err := s.baseContext()
	if err != nil {
		base = context.Background()
	}
	c := &runContext{}
	c.Context = context.WithValue(base, runContextKey{}, c)
	if c.own, c.end = context.WithCancelCause(base); err != nil {
		c.end(err)
	}
	return c
}

// Done implements context.Context.
func (c *runContext) Done() <-chan struct{} { return c.own.Done() }

// Err implements context.Context. Contexts that are derived from c read it once, when c ends.
func (c *runContext) Err() error {
	if err := c.own.Err(); err == nil || c.Context.Err() != nil {
		return err
	}
	return context.Cause(c.own)
}
