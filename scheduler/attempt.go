package scheduler

import (
	"context"
	"errors"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/throttle"
)

// attempt is one try of asynq's to run a job.
type attempt struct {
	job
	task     *asynq.Task
	rule     Rule
	retried  int // failures so far
	maxRetry int
}

// newAttempt reads from a handler's context which job it is, and how often it has
// failed.
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
func (s *Server) wrap(next asynq.Handler) asynq.Handler {
	return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		a := newAttempt(ctx, task)
		err := s.try(ctx, a, next)
		if later, ok := errors.AsType[*putBackError](err); ok {
			s.putBacks.add(a.job, later)
		}
		return err
	})
}

// try runs the handler under its permits: finds the rule, asks the limiter, keeps
// what is leased for as long as the handler runs, and judges how it ended. The
// handler gets the rule with its context: see [GetRule].
func (s *Server) try(ctx context.Context, a attempt, next asynq.Handler) (err error) {
	if a.rule, err = s.rules.For(ctx, a.task); err != nil {
		return finalError{err}
	}
	began := time.Now()
	decision, err := s.permit(ctx, a)
	if err != nil {
		return err
	}
	ctx, free := s.hold(context.WithValue(ctx, ruleKey{}, a.rule), a, began, decision)
	defer free()
	return a.judge(next.ProcessTask(ctx, a.task))
}

// permit returns nil when the job may run, and otherwise the error that makes
// asynq put it back, archive or delete it.
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
	d, err := s.limiter.Acquire(ctx, throttle.Job{
		JobID: throttle.JobID{Queue: a.queue, ID: a.id}, Priority: priorityOf(a.task, a.rule),
		MaxWait: a.rule.MaxWait, Deadline: s.deadlines.of(a.job), Grant: s.grant,
	}, a.rule.Needs...)
	s.noteLimiter(ctx, began, err)
	return d, err
}

// refuse is the end of a job that cannot have its permits, or that it runs without.
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
// back.
func (s *Server) delay(d throttle.Decision) time.Duration {
	if !s.promotes.Load() {
		return d.RetryAfter
	}
	return d.PutBack
}

// judge turns a handler's error into what asynq should make of it.
func (a attempt) judge(err error) error {
	if as, ok := errors.AsType[*putBackAs](err); ok {
		return &putBackError{error: err, at: time.Now(), as: as}
	}
	if err == nil || errors.Is(err, asynq.SkipRetry) || errors.Is(err, asynq.RevokeTask) {
		return err
	}
	if d, ok := errors.AsType[retryAfter](err); ok {
		return &putBackError{error: err, at: time.Now().Add(time.Duration(d))}
	}
	policy := a.rule.Retry
	if policy == nil {
		return err
	}
	if a.retried >= policy.maxRetry(a.maxRetry, err) {
		return finalError{err}
	}
	return spacedError{err, policy.Delay(a.retried, err)}
}
