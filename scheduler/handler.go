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
		var j job
		j.ID, _ = asynq.GetTaskID(ctx)
		j.Queue, _ = asynq.GetQueueName(ctx)
		q := s.inFlight.take(j)
		if q == nil { // a later attempt has the job
			release(ctx)
			return asynq.ErrLeaseExpired
		}
		context.AfterFunc(ctx, func() { // asynq is done with the attempt, and its slot is free
			release(ctx)
			s.inFlight.freeSlot(j, q.leaseID)
		})
		if time.Now().After(q.leaseEnd) { // it came so late that another may have it
			go s.releaseUnused(q)
			return asynq.ErrLeaseExpired
		}
		err := s.try(ctx, task, q, next)
		if later, ok := errors.AsType[*putBackError](err); ok {
			s.inFlight.note(j, q.leaseID, func(a *flight) { a.putBack = later })
		}
		return withStorableText(err)
	})
}

// try runs the handler under permits that are not old when it begins: a job that comes later
// asks anew, as often as that happens.
func (s *Server) try(ctx context.Context, task *asynq.Task, q *acquireRequest, next asynq.Handler) error {
	for {
		if err := s.awaitPermits(ctx, q); err != nil {
			s.history.CountEnd(q.name(), q.end(ctx, err))
			return err
		}
		if stale, err := s.runUnder(ctx, task, q, next); !stale {
			return err
		}
		if q = q.retry(); q.retries == 3 {
			s.log.Warn("a job's permits grow old before it begins: this machine, or the way to Redis, is too slow", "job", q.ID, "queue", q.Queue)
		}
		s.request([]*acquireRequest{q})
	}
}

// runUnder runs the handler under its permits: keeps what is leased for as long as the handler
// runs, and judges how it ended. The handler gets the rule with its context: see
// [GetRule]. A panic passes through, so that asynq makes its own error of it; the deferred
// calls give the leases back and end the span all the same. If the permits are stale by now
// nothing was begun.
func (s *Server) runUnder(ctx context.Context, task *asynq.Task, q *acquireRequest, next asynq.Handler) (stale bool, err error) {
	a := q.attempt
	a.task = task // which asynq has made, with a writer of its result
	h := &runningJob{server: s, attempt: a, decision: q.decision, began: time.Now()}
	unwanted := a.unwanted(ctx)
	if unwanted == nil {
		ctx, h.ended = a.begin(ctx)
	}
	ctx, free := s.hold(context.WithValue(ctx, runningJobKey{}, h), a, q.sentAt, q.decision)
	defer free()
	if unwanted != nil {
		if later, ok := errors.AsType[*putBackError](unwanted); ok {
			later.position = q.queuePosition()
		}
		s.history.CountEnd(a.name(), a.end(ctx, unwanted))
		return false, unwanted
	}
	ctx, traced := a.traceRun(ctx, q.decision)
	err = errPanicked // unless it returns
	defer func() { traced(err) }()
	if q.stale() { // as late as can be: this process may have been stopped until now
		h.ended()
		return true, errStale
	}
	err = h.run(ctx, next)
	return false, err
}

// answer waits for the answer to a job, and until its permits exist. The error is why the job
// does not run.
func (s *Server) awaitPermits(ctx context.Context, q *acquireRequest) error {
	if err := q.wait(ctx); err != nil {
		go s.releaseUnused(q)
		return &putBackError{error: err, at: time.Now().Add(time.Second), denied: true, position: q.queuePosition()}
	}
	if q.panicked != nil {
		panic(q.panicked)
	}
	q.waitToBegin(ctx)
	return q.err
}

// What the span of a run says that did not return, or that was not begun.
var (
	errPanicked = errors.New("the handler panicked")
	errStale    = errors.New("the permits had grown old: the job asks anew")
)
