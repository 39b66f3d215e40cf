package scheduler

import (
	"context"
	"errors"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/history"
)

// attempt is one try of asynq's to run a job: what is known of it before its
// handler runs. It does not change once its rule is found, and is passed by value.
// A job that is denied and comes back is a new attempt here, though asynq counts
// none.
type attempt struct {
	job
	task     *asynq.Task
	rule     Rule
	retried  int // failures so far
	maxRetry int
	stood    stood
	term
}

// newAttempt reads from a handler's context which job it is, and how often it has
// failed.
func newAttempt(ctx context.Context, task *asynq.Task) attempt {
	a := attempt{task: task, stood: stoodOf(task)}
	a.ID, _ = asynq.GetTaskID(ctx)
	a.Queue, _ = asynq.GetQueueName(ctx)
	a.retried, _ = asynq.GetRetryCount(ctx)
	a.maxRetry, _ = asynq.GetMaxRetry(ctx)
	return a
}

// wrap returns the handler that asynq's server gets: next, once the job has its permits,
// for which it asked when it was taken. Most jobs without them are put back before asynq
// has them. Of the others what is to be put back is remembered here and not where the
// error is made, since asynq acts on what this function returns: nothing that ran after
// could change it.
func (s *Server) wrap(next asynq.Handler) asynq.Handler {
	return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		a := newAttempt(ctx, task)
		q := s.askings.take(a.job)
		context.AfterFunc(ctx, func() { // asynq is done with the attempt, and its slot is free
			release(ctx)
			s.redis.ahead.hands.remove(a.job)
		})
		if q != nil && time.Now().After(q.lease) { // it came so late that another may have it
			go s.waste(q)
			return asynq.ErrLeaseExpired
		}
		if q == nil { // it was not taken here
			q = &asking{attempt: a}
			s.ask([]*asking{q})
		}
		err := s.try(ctx, a, q, next)
		if later, ok := errors.AsType[*putBackError](err); ok {
			s.putBacks.add(a.job, later)
		}
		return withStorableText(err)
	})
}

// try runs the handler under its permits: keeps what is leased for as long as the handler
// runs, and judges how it ended. The handler gets the rule with its context: see
// [GetRule]. A panic passes through, so that asynq makes its own error of it; the deferred
// calls give the leases back and end the span all the same.
func (s *Server) try(ctx context.Context, a attempt, q *asking, next asynq.Handler) (err error) {
	if q, err = s.answer(ctx, q); err != nil {
		s.history.Ended(a.name(), a.end(ctx, err))
		return err
	}
	a.rule, a.term = q.rule, q.term
	h := &handling{server: s, attempt: a, decision: q.decision, began: time.Now()}
	ctx, free := s.hold(context.WithValue(ctx, handlingKey{}, h), a, q.began, q.decision)
	defer free()
	if err = a.unwanted(ctx); err != nil {
		s.history.Ended(a.name(), a.end(ctx, err))
		return err
	}
	ctx, traced := a.traceRun(ctx, q.decision)
	err = errPanicked // unless it returns
	defer func() { traced(err) }()
	err = h.run(ctx, next)
	return err
}

// answer waits for the answer to a job, and asks once more if it has become stale since.
// The error is why the job does not run.
func (s *Server) answer(ctx context.Context, q *asking) (*asking, error) {
	for again := false; ; again = true {
		if err := q.wait(ctx); err != nil {
			go s.waste(q)
			return q, &putBackError{error: err, at: time.Now().Add(time.Second), denied: true}
		}
		if again || !q.stale() {
			break
		}
		s.waste(q)
		q = &asking{attempt: q.attempt}
		s.ask([]*asking{q})
	}
	if q.panicked != nil {
		panic(q.panicked)
	}
	q.waitToBegin(ctx)
	return q, q.err
}

// unwanted is why a job is not begun that may run, or nil: its deadline has passed while
// it asked, or asynq has given the attempt up, as when the job's lease ended.
func (a attempt) unwanted(ctx context.Context) error {
	if err := a.late(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return &putBackError{error: err, at: time.Now().Add(time.Second), denied: true}
	}
	return nil
}

// errPanicked is what the span of a run says that did not return.
var errPanicked = errors.New("the handler panicked")

// run has the job run, and counts how it ended: a panic is a failure, too, so that
// is what end says until the handler has returned. One whose time is over has failed,
// whatever it says: asynq, which gives it up at that moment, may or may not hear it.
func (h *handling) run(ctx context.Context, next asynq.Handler) (err error) {
	ended, end := h.server.history.Began(h.name()), h.failed()
	defer func() {
		ended(end)
		switch {
		case end == history.Failed || end == history.Archived:
			h.server.redis.runs.add(h.job, handled{time.Since(h.began), h.since()})
		case end == history.Done && h.retried > 0:
			h.server.redis.runs.add(h.job, handled{took: time.Since(h.began)})
		}
	}()
	over, err := h.within(ctx, func(ctx context.Context) error { return next.ProcessTask(ctx, h.task) })
	if err = h.judge(ctx, err); over {
		err = context.DeadlineExceeded
	}
	if later, ok := errors.AsType[*putBackError](err); ok && !later.denied && later.as == nil {
		later.since = h.since()
	}
	end = h.end(ctx, err)
	return err
}

// name is what the job is counted by.
func (a attempt) name() history.Task { return history.Task{Queue: a.Queue, Type: a.task.Type()} }

// end is how an attempt ends, in asynq, that returns err. The order of the cases is
// asynq's: a context that is over comes before all that the handler says, and a
// job that is dropped is never archived.
func (a attempt) end(ctx context.Context, err error) history.End {
	later, isLater := errors.AsType[*putBackError](err)
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded): // then asynq heard nothing of err
		return a.failed()
	case err == nil:
		return history.Done
	case isLater && later.denied:
		return history.PutBack
	case isLater:
		return history.RetryAfter
	case errors.Is(err, asynq.RevokeTask):
		return history.Dropped
	case errors.Is(err, asynq.SkipRetry):
		return history.Archived
	}
	return a.failed()
}

// failed is how a failed attempt ends.
func (a attempt) failed() history.End {
	if a.retried >= a.maxRetry {
		return history.Archived
	}
	return history.Failed
}
