package scheduler

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/history"
	"github.com/headgate/headgate/throttle"
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
	term
}

// newAttempt reads from a handler's context which job it is, and how often it has
// failed. The context is the only place where asynq tells a handler; its term is not
// in it: see terms.
func newAttempt(ctx context.Context, task *asynq.Task) attempt {
	a := attempt{task: task}
	a.id, _ = asynq.GetTaskID(ctx)
	a.queue, _ = asynq.GetQueueName(ctx)
	a.retried, _ = asynq.GetRetryCount(ctx)
	a.maxRetry, _ = asynq.GetMaxRetry(ctx)
	return a
}

// wrap returns the handler that asynq's server gets. It asks for a job's
// permits before next runs. A job without them goes back to its queue and comes
// again when they exist; no worker waits.
//
// What is to be put back is remembered here and not where the error is made, since
// asynq acts on what this function returns: nothing that ran after could change it.
func (s *Server) wrap(next asynq.Handler) asynq.Handler {
	return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		a := newAttempt(ctx, task)
		a.term = s.terms.of(a.job)
		context.AfterFunc(ctx, func() { // asynq is done with the attempt, and its slot is free
			release(ctx)
			s.redis.ahead.hands.remove(a.job)
		})
		err := s.try(ctx, a, next)
		if later, ok := errors.AsType[*putBackError](err); ok {
			s.putBacks.add(a.job, later)
		}
		return withStorableText(err)
	})
}

// try runs the handler under its permits: finds the rule, asks the limiter, keeps
// what is leased for as long as the handler runs, and judges how it ended. The
// handler gets the rule with its context: see [GetRule]. A panic passes through, so
// that asynq makes its own error of it; the deferred calls give the leases back and
// end the span all the same.
func (s *Server) try(ctx context.Context, a attempt, next asynq.Handler) (err error) {
	if a.rule, err = s.rules.For(ctx, a.task); err != nil {
		s.history.Ended(a.name(), a.end(ctx, err))
		return err
	}
	if err = a.late(); err != nil {
		if len(a.rule.Needs) > 0 {
			_, _ = s.limiter.Forget(ctx, throttle.JobID{Queue: a.queue, ID: a.id}) // what fails here, the upkeep does
		}
		s.history.Ended(a.name(), a.end(ctx, err))
		return err
	}
	began := time.Now()
	decision, err := s.permit(ctx, a)
	if err != nil {
		s.history.Ended(a.name(), a.end(ctx, err))
		return err
	}
	h := &handling{server: s, attempt: a, decision: decision, began: time.Now()}
	ctx, free := s.hold(context.WithValue(ctx, handlingKey{}, h), a, began, decision)
	defer free()
	if err = a.unwanted(ctx); err != nil {
		s.history.Ended(a.name(), a.end(ctx, err))
		return err
	}
	ctx, done := a.begin(ctx)
	defer done()
	ctx, traced := a.traceRun(ctx, decision)
	err = errPanicked // unless it returns
	defer func() { traced(err) }()
	err = h.run(ctx, next)
	return err
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
	defer func() { ended(end) }()
	err = h.judge(ctx, next.ProcessTask(ctx, h.task))
	if over := ctx.Err(); errors.Is(over, context.DeadlineExceeded) {
		err = over
	}
	end = h.end(ctx, err)
	return err
}

// name is what the job is counted by.
func (a attempt) name() history.Task { return history.Task{Queue: a.queue, Type: a.task.Type()} }

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

// permit returns nil when the job may run, and otherwise the error that makes
// asynq put it back, archive or delete it. Where the limiter cannot be asked the job
// is put back for a second: to run it would break the limit, and to fail it would
// spend attempts on an outage that is not the job's.
func (s *Server) permit(ctx context.Context, a attempt) (throttle.Decision, error) {
	if len(a.rule.Needs) == 0 {
		return throttle.Decision{}, nil
	}
	d, err := s.acquire(ctx, a)
	if errors.Is(err, throttle.ErrUnavailable) {
		// It may have a place in its lane, and be called from there.
		return d, &putBackError{error: err, at: time.Now().Add(time.Second), denied: true}
	}
	if err != nil {
		return d, finalError{err}
	}
	switch d.Outcome {
	case throttle.Allowed:
		return d, nil
	case throttle.Denied:
		s.log.LogAttrs(ctx, slog.LevelDebug, "job denied", slog.String("type", a.task.Type()), slog.String("id", a.id),
			slog.String("queue", a.queue), slog.String("limit", d.Limit), slog.String("key", d.Key), slog.Duration("retry_after", d.RetryAfter))
		return d, &putBackError{error: errors.New(d.String()), at: time.Now().Add(s.delay(d)), denied: true}
	case throttle.TooLate:
		return refuse(a.rule.OnMaxWait, d)
	case throttle.NoLimit:
		return refuse(a.rule.OnNoLimit, d)
	}
	return refuse(Archive, d)
}

// acquire asks the limiter, which must have been told the rules' limits before:
// no job is refused for one that it does not know yet.
func (s *Server) acquire(ctx context.Context, a attempt) (throttle.Decision, error) {
	if err := s.define(ctx); err != nil {
		return throttle.Decision{}, err
	}
	began := time.Now()
	d, err := s.limiter.Acquire(ctx, s.asks(a), a.rule.Needs...)
	s.noteLimiter(ctx, began, err)
	s.history.Asked(time.Since(began), err != nil)
	if err == nil {
		s.history.Decided(a.queue, a.id, a.rule.Needs, d)
	}
	return d, err
}

// asks is the job as the limiter knows it. Its deadline is said to be a second sooner, so
// that one that waits until then is archived with the reason why it waited.
func (s *Server) asks(a attempt) throttle.Job {
	j := throttle.Job{
		JobID: throttle.JobID{Queue: a.queue, ID: a.id}, Priority: priorityOf(a.task, a.rule),
		MaxWait: a.rule.MaxWait, Grant: s.grant,
	}
	if !a.deadline.IsZero() {
		j.Deadline = a.deadline.Add(-time.Second)
	}
	return j
}

// refuse is the end of a job that cannot have its permits, or that it runs without:
// then under the zero Decision, for it took nothing that could be settled or freed.
func refuse(action Action, d throttle.Decision) (throttle.Decision, error) {
	switch action {
	case Run:
		return throttle.Decision{}, nil
	case Drop:
		return d, &RefusedError{d, asynq.RevokeTask}
	}
	return d, &RefusedError{d, asynq.SkipRetry}
}

// delay is how long a denied job stays in asynq's retry set if nobody calls it
// back. Where jobs are promoted that is a safety net, and longer than the wait: one
// that came early would be denied again. Where they are not, only its end brings
// the job back, so it is the wait itself.
func (s *Server) delay(d throttle.Decision) time.Duration {
	if !s.promotes.Load() {
		return d.RetryAfter
	}
	return d.PutBack
}
