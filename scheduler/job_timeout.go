package scheduler

import (
	"context"
	"errors"
	"time"

	"github.com/headgate/headgate/internal/asynqdb"
)

const (
	// disabledOffset is about 30,000 years in seconds. The timeout and the deadline of a job that
	// asynq gets are larger by disabledOffset times the attempt's number. That disables asynq's
	// timer, because the timer would include the wait for permits. It also names the attempt in the
	// message with which asynq writes the attempt's end, and in the handler's context. The server
	// enforces the original values when the handler has started. An original value is the remainder
	// of a division by disabledOffset.
	disabledOffset = 1_000_000_000_000
)

// withoutTimer returns the attempt's message as asynq gets it.
func (a *attempt) withoutTimer() []byte {
	timeout, deadline := int64(a.timeout/time.Second), int64(0)
	if !a.deadline.IsZero() {
		deadline = a.deadline.Unix()
	}
	offset := a.number * disabledOffset
	return asynqdb.WithTimes(a.Msg, timeout+offset, deadline+offset)
}

// attemptNumber returns the number of the attempt for which asynq made the context.
func attemptNumber(ctx context.Context) int64 {
	deadline, _ := ctx.Deadline()
	return deadline.Unix() / disabledOffset
}

// deadlineFrom returns when an attempt that starts at the time now must end, or the zero time if
// the job has neither a timeout nor a deadline.
func (a *attempt) deadlineFrom(now time.Time) time.Time {
	if end := now.Add(a.timeout); a.timeout > 0 && (a.deadline.IsZero() || end.Before(a.deadline)) {
		return end
	}
	return a.deadline
}

// startTimer starts the timer of a handler. At the job's timeout or deadline the returned context
// ends, and asynq abandons the attempt, even if the handler still runs. The function stop ends the
// timer, and reports whether the handler took too long.
func (a *attempt) startTimer(ctx context.Context) (_ context.Context, stop func() (over bool)) {
	over := func() bool { return errors.Is(ctx.Err(), context.DeadlineExceeded) }
	end := a.deadlineFrom(a.began)
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

// runContext is the parent of the context that asynq makes for one attempt. asynq sets the deadline
// of its context before the handler starts. Therefore the handler's timer ends the parent, with the
// error of a passed deadline.
//
// Its values do not come from own: package context would find own's cancelCtx among them, and use
// the error Canceled in place of Err.
type runContext struct {
	context.Context // the program's, with the runContext itself as a value
	own             context.Context
	end             context.CancelCauseFunc // ends own; Err returns the cause
}

// runContextKey is the key under which a runContext is its own value.
type runContextKey struct{}

// newRunContext makes the parent of asynq's context for one attempt from the program's BaseContext.
// If BaseContext fails, the new context has ended with that error, so that asynq fails the job and
// calls no handler. The handler of Server.wrap ends the new context, so that the program's context
// keeps no reference to it.
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

// Deadline implements context.Context. asynq's context has the deadline of its message, because that
// names the attempt: see attemptNumber.
func (c *runContext) Deadline() (deadline time.Time, ok bool) { return time.Time{}, false }

// withDeadline returns asynq's context with the deadline of the program's.
func (c *runContext) withDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if deadline, ok := c.Context.Deadline(); ok {
		return context.WithDeadline(ctx, deadline)
	}
	return ctx, func() {}
}

// Done implements context.Context.
func (c *runContext) Done() <-chan struct{} { return c.own.Done() }

// Err implements context.Context.
func (c *runContext) Err() error {
	if err := c.own.Err(); err == nil || c.Context.Err() != nil {
		return err
	}
	return context.Cause(c.own)
}
