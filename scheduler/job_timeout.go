package scheduler

import (
	"context"
	"errors"
	"time"

	"github.com/headgate/headgate/internal/asynqdb"
)

// jobTimeout holds the timeout and the deadline that the producer has set. The timeout is for each
// attempt, the deadline for all attempts. Zero means none.
//
// asynq starts its own timer when it dequeues a job, which would count the time that the job waits
// for permits, and would fail a job after its deadline before it has asked for any. Therefore
// disabledOffset is added to both before asynq sees them, and the originals are enforced when the
// handler starts.
type jobTimeout struct {
	timeout  time.Duration
	deadline time.Time
}

// disabledOffset is added to timeouts and deadlines, in seconds: about 30,000 years. A changed
// value is recognized by its size, so that nothing needs to be remembered.
const disabledOffset = 1_000_000_000_000

// original returns a number of seconds without disabledOffset.
func original(seconds int64) int64 {
	if seconds >= disabledOffset {
		return seconds - disabledOffset
	}
	return seconds
}

// jobTimeoutOf returns the timeout and the deadline of a message.
func jobTimeoutOf(m asynqdb.Message) (t jobTimeout) {
	t.timeout = time.Duration(max(0, original(m.Timeout))) * time.Second
	if deadline := original(m.Deadline); deadline > 0 {
		t.deadline = time.Unix(deadline, 0)
	}
	return t
}

// disableIn returns a job's message as asynq gets it, with disabledOffset added. The message of a
// job that has neither a timeout nor a deadline stays as it is, because asynq's default applies.
func (t jobTimeout) disableIn(msg string) string {
	if t == (jobTimeout{}) {
		return msg
	}
	deadline := int64(0)
	if !t.deadline.IsZero() {
		deadline = t.deadline.Unix()
	}
	return string(asynqdb.WithTimes([]byte(msg), int64(t.timeout/time.Second)+disabledOffset, deadline+disabledOffset))
}

// restoreTimeout returns a message that asynq writes to Redis with the original timeout and
// deadline.
func restoreTimeout(msg []byte, m asynqdb.Message) []byte {
	if m.Timeout < disabledOffset && m.Deadline < disabledOffset {
		return msg
	}
	return asynqdb.WithTimes(msg, original(m.Timeout), original(m.Deadline))
}

// start starts the handler's time. It returns the handler's context, which is derived from asynq's and
// ends when the time is over. At that moment asynq abandons the attempt, even if the handler has not
// returned. The caller calls ended after the handler has returned; ended reports whether the time was
// over.
func (t jobTimeout) start(ctx context.Context) (_ context.Context, ended func() (over bool)) {
	end := t.end(time.Now())
	parent, ok := ctx.Value(runContextKey{}).(*runContext)
	if end.IsZero() || !ok {
		return ctx, func() bool { return errors.Is(ctx.Err(), context.DeadlineExceeded) }
	}
	ctx, cancel := context.WithDeadline(ctx, end)
	stop := context.AfterFunc(ctx, func() {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			parent.end(context.DeadlineExceeded)
		}
	})
	return ctx, func() bool {
		stop()
		cancel()
		return errors.Is(ctx.Err(), context.DeadlineExceeded)
	}
}

// end returns the time at which an attempt that starts now must end, or zero if there is no bound.
func (t jobTimeout) end(now time.Time) time.Time {
	if over := now.Add(t.timeout); t.timeout > 0 && (t.deadline.IsZero() || over.Before(t.deadline)) {
		return over
	}
	return t.deadline
}

// A runContext is the parent of asynq's context of one attempt. asynq gives an attempt up when its
// own context ends, and the deadline of that context cannot be changed when the handler starts.
// Therefore the parent is ended, as if asynq's deadline had come.
type runContext struct {
	context.Context // the program's, and its values
	own             context.Context
	end             context.CancelCauseFunc
}

// runContextKey is the context key that returns the runContext itself.
type runContextKey struct{}

// runContexts makes the parents of asynq's contexts from the program's BaseContext. If BaseContext
// fails, the job fails.
func runContexts(next func() (context.Context, error)) func() context.Context {
	return func() context.Context {
		base, err := next()
		if err != nil {
			base = brokenContext{context.Background(), err}
		}
		own, end := context.WithCancelCause(base)
		return &runContext{base, own, end}
	}
}

// release detaches the runContext from the program's context when asynq is done with the attempt. A
// context that can end would keep a reference to the runContext otherwise.
func release(ctx context.Context) {
	if parent, ok := ctx.Value(runContextKey{}).(*runContext); ok && parent.Context.Done() != nil {
		parent.end(nil)
	}
}

// Value implements context.Context. It reads from the program's context, not from own. Otherwise
// package context would find own's cancelCtx there, and use its error, Canceled, instead of Err's.
func (c *runContext) Value(key any) any {
	if key == (runContextKey{}) {
		return c
	}
	return c.Context.Value(key)
}

// Done implements context.Context.
func (c *runContext) Done() <-chan struct{} { return c.own.Done() }

// Err implements context.Context.
func (c *runContext) Err() error {
	if errors.Is(context.Cause(c.own), context.DeadlineExceeded) {
		return context.DeadlineExceeded
	}
	return c.own.Err()
}
