package scheduler

import (
	"context"
	"errors"
	"time"

	"github.com/headgate/headgate/internal/asynqdb"
)

// A term is how long a job may take, as its producer said: asynq's Timeout, which is
// each run's own, and its Deadline, which is all runs'. Zero values mean none.
type term struct {
	timeout  time.Duration
	deadline time.Time
}

// asynq counts a Timeout from when it takes a job, and fails the job when that or the
// Deadline is over, whatever is being done: a limiter that hangs would spend attempts,
// and a job that comes after its deadline would be failed, unasked, until its retries
// are used up. So asynq is told both as being far off, and each handler's time begins
// here, when it may run. Nor does a handler's context tell one from the other, and they
// are not alike: a job waits for permits until its deadline, one with a timeout has all
// of it again when it comes back.

// far is by how many seconds both are moved, about 30,000 years. What is moved is told
// from what is not by its size: so nothing need be remembered to move it back, and
// nothing is wrong where that was missed.
const far = 1_000_000_000_000

// near is a number of seconds as it was before it was moved, if it was.
func near(seconds int64) int64 {
	if seconds >= far {
		return seconds - far
	}
	return seconds
}

// termOf is the term that a job's producer gave it.
func termOf(m asynqdb.Message) (t term) {
	t.timeout = time.Duration(max(0, near(m.Timeout))) * time.Second
	if deadline := near(m.Deadline); deadline > 0 {
		t.deadline = time.Unix(deadline, 0)
	}
	return t
}

// afar is a job's message as asynq gets it, with its term moved. That of a job that has
// neither a timeout nor a deadline stays as it is: it is asynq's to say how long it may
// run.
func (t term) afar(msg string) string {
	if t == (term{}) {
		return msg
	}
	deadline := int64(0)
	if !t.deadline.IsZero() {
		deadline = t.deadline.Unix()
	}
	return string(asynqdb.WithTimes([]byte(msg), int64(t.timeout/time.Second)+far, deadline+far))
}

// restore returns a message that asynq writes to Redis, with the job's own term.
func restore(msg []byte, m asynqdb.Message) []byte {
	if m.Timeout < far && m.Deadline < far {
		return msg
	}
	return asynqdb.WithTimes(msg, near(m.Timeout), near(m.Deadline))
}

// begin begins the time of a handler, and returns the handler's context, which ends when that
// time is over: then asynq gives the attempt up, whether the handler returns or not. ctx is
// from asynq's. ended is to be called when the handler has returned, and reports whether the
// time was over; what is done after it takes none of it. A handler that ends its goroutine
// instead is given up at the end of its time.
func (t term) begin(ctx context.Context) (_ context.Context, ended func() (over bool)) {
	end := t.end(time.Now())
	below, ok := ctx.Value(runContextKey{}).(*runContext)
	if end.IsZero() || !ok {
		return ctx, func() bool { return errors.Is(ctx.Err(), context.DeadlineExceeded) }
	}
	ctx, cancel := context.WithDeadline(ctx, end)
	stop := context.AfterFunc(ctx, func() {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			below.end(context.DeadlineExceeded)
		}
	})
	return ctx, func() bool {
		stop()
		cancel()
		return errors.Is(ctx.Err(), context.DeadlineExceeded)
	}
}

// end is when the time is over of what begins now; zero if that is never.
func (t term) end(now time.Time) time.Time {
	if over := now.Add(t.timeout); t.timeout > 0 && (t.deadline.IsZero() || over.Before(t.deadline)) {
		return over
	}
	return t.deadline
}

// A runContext is below asynq's context of one attempt. asynq gives an attempt up when
// its own context ends, whose deadline cannot be set any more when the handler begins:
// so it is ended from below, as if its deadline had come.
type runContext struct {
	context.Context // the program's, and its values
	own             context.Context
	end             context.CancelCauseFunc
}

// runContextKey is the context key of the runContext itself.
type runContextKey struct{}

// runContexts makes the contexts below asynq's from the program's own. A job for which the
// program can make none fails.
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

// release has the runContext below asynq's context forgotten by the program's, if that
// can end and so knows of it. It is called when asynq is done with the attempt.
func release(ctx context.Context) {
	if below, ok := ctx.Value(runContextKey{}).(*runContext); ok && below.Context.Done() != nil {
		below.end(nil)
	}
}

// Value implements context.Context. That it does not ask own keeps package context
// from taking Canceled from there in place of Err.
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
