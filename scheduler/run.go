package scheduler

import (
	"context"
	"errors"
	"time"

	"github.com/hibiken/asynq"
)

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
	unwanted := a.unwanted(ctx)
	if unwanted == nil {
		ctx, h.ended = a.begin(ctx)
	}
	ctx, free := s.hold(context.WithValue(ctx, handlingKey{}, h), a, q.began, q.decision)
	defer free()
	if unwanted != nil {
		s.history.Ended(a.name(), a.end(ctx, unwanted))
		return unwanted
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

// errPanicked is what the span of a run says that did not return.
var errPanicked = errors.New("the handler panicked")
