package scheduler

import (
	"context"
	"errors"
	"time"

	"github.com/headgate/headgate/internal/asynqdb"
)

// jobTimeout holds the timeout and the deadline that a job's producer has set. The timeout is for
// each attempt, the deadline for all attempts together. Zero means none.
//
// asynq starts its own timer when it fetches a job. That timer would include the time for which the
// job waits for permits, and a job would fail at its deadline before it has asked for permits.
// Therefore asynq gets the job with disabledOffset added to both, and the server enforces the
// original values once the handler has started.
type jobTimeout struct {
	timeout  time.Duration
	deadline time.Time
}

// disabledOffset is added to timeouts and deadlines, in seconds: about 30,000 years. Original
// values are smaller, so the server gets an original value back as the remainder of a division by
// disabledOffset.
const disabledOffset = 1_000_000_000_000

// disableIn returns the message of a job as asynq gets it: with disabledOffset added to the timeout
// and the deadline. The message of a job without timeout and deadline stays as it is: asynq's
// default timeout applies.
func (t jobTimeout) disableIn(msg string) string {
	if t == (jobTimeout{}) {
		return msg
	}
	deadline := int64(disabledOffset)
	if !t.deadline.IsZero() {
		deadline += t.deadline.Unix()
	}
	return string(asynqdb.WithTimes([]byte(msg), int64(t.timeout/time.Second)+disabledOffset, deadline))
}

// restoreTimeout returns a message that asynq writes to Redis with its original timeout and
// deadline.
func restoreTimeout(msg []byte, m asynqdb.Message) []byte {
	if m.Timeout < disabledOffset && m.Deadline < disabledOffset {
		return msg
	}
	return asynqdb.WithTimes(msg, m.Timeout%disabledOffset, m.Deadline%disabledOffset)
}

// startTimer starts the timer of a handler. The context that it returns is derived from asynq's
// context and ends at the timeout or the deadline. At that moment asynq abandons the attempt, even
// if the handler has not returned. The function stop ends the timer, and reports whether the
// handler took too long.
func (t jobTimeout) startTimer(ctx context.Context, now time.Time) (_ context.Context, stop func() (over bool)) {
	over := func() bool { return errors.Is(ctx.Err(), context.DeadlineExceeded) }
	end := t.endOf(now)
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

// endOf returns when an attempt that starts now must end, or the zero time if the job has neither a
// timeout nor a deadline.
func (t jobTimeout) endOf(now time.Time) time.Time {
	if end := now.Add(t.timeout); t.timeout > 0 && (t.deadline.IsZero() || end.Before(t.deadline)) {
		return end
	}
	return t.deadline
}

// runContext is the parent of the context that asynq makes for one attempt. asynq abandons an
// attempt when that context ends, and sets its deadline before the handler starts. Because the
// deadline cannot be changed later, the handler's timer ends the parent, with the error of a passed
// deadline.
type runContext struct {
	context.Context // the program's, for its values
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
	c := &runContext{Context: base}
	c.own, c.end = context.WithCancelCause(base)
	if err != nil {
		c.end(err)
	}
	return c
}

// Value implements context.Context. It reads from the program's context and not from own: package
// context would find own's cancelCtx there, and use its error, Canceled, in place of Err.
func (c *runContext) Value(key any) any {
	if key == (runContextKey{}) {
		return c
	}
	return c.Context.Value(key)
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
