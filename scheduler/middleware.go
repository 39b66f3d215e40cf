package scheduler

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/throttle"
)

// Middleware asks for a job's permits before it runs. A job without them goes
// back to its queue and comes again when they exist; no worker waits. A job
// that can never have them is archived with a *RefusedError.
func (t *Throttler) Middleware(next asynq.Handler) asynq.Handler {
	return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		attempt := attemptFrom(ctx, task)
		if attempt.exhausted() {
			return fmt.Errorf("all of its %d retries were used: %w", attempt.maxRetry, asynq.SkipRetry)
		}
		rule, err := t.rules(ctx, task)
		if err != nil {
			return fmt.Errorf("%w: %w", err, asynq.SkipRetry)
		}
		leases, err := t.permit(ctx, task, attempt, rule)
		if err != nil {
			return err
		}
		ctx, free := t.hold(ctx, leases)
		defer free()
		return attempt.judge(next.ProcessTask(ctx, task), rule.Retry)
	})
}

// permit returns nil when the job may run, with the leases it then holds, and
// otherwise the error that makes asynq put it back, archive or delete it.
func (t *Throttler) permit(ctx context.Context, task *asynq.Task, a attempt, rule Rule) (leases, error) {
	if len(rule.Needs) == 0 {
		return leases{}, nil
	}
	job := throttle.Job{ID: a.id, Queue: a.queue, Priority: a.priority(rule), MaxWait: rule.MaxWait}
	d, err := t.limiter.Acquire(ctx, job, rule.Needs...)
	if errors.Is(err, throttle.ErrUnavailable) {
		t.note(err)
		return leases{}, t.putBack(ctx, task, a, throttle.Decision{}, time.Second)
	}
	if err != nil {
		return leases{}, fmt.Errorf("%w: %w", err, asynq.SkipRetry)
	}
	t.note(nil)
	if d.Outcome == throttle.Denied && t.tooLate(ctx, a, d) {
		d.Outcome = throttle.TooLate
		t.note(t.limiter.Forget(ctx, a.id))
	}
	switch d.Outcome {
	case throttle.Allowed:
		return leases{d, rule.Needs}, nil
	case throttle.Denied:
		return leases{}, t.putBack(ctx, task, a, d, t.delay(d))
	case throttle.TooLate:
		return leases{}, refuse(rule.OnMaxWait, d)
	case throttle.NoLimit:
		return leases{}, refuse(rule.OnNoLimit, d)
	}
	return leases{}, &RefusedError{d}
}

func refuse(action Action, d throttle.Decision) error {
	switch action {
	case Run:
		return nil
	case Drop:
		return fmt.Errorf("%s: %w", d, errDropped)
	}
	return &RefusedError{d}
}

// delay is how long a denied job stays in asynq's retry set if nobody calls it
// back. Where nobody does, asynq's scores are whole seconds, rounded down, so a
// second is added.
func (t *Throttler) delay(d throttle.Decision) time.Duration {
	if !t.release.Load() {
		return d.RetryAfter + time.Second
	}
	return d.PutBack
}

// putBack returns the error that makes asynq keep the job for later.
func (t *Throttler) putBack(ctx context.Context, task *asynq.Task, a attempt, d throttle.Decision, delay time.Duration) error {
	if a.lastForAsynq() {
		return t.replace(ctx, task, a, d, delay)
	}
	return &deniedError{d, delay}
}

// tooLate is whether the job's own deadline passes before its permits exist.
// The context's deadline may only be that of the attempt's timeout, so when it
// is near, the job itself is asked.
func (t *Throttler) tooLate(ctx context.Context, a attempt, d throttle.Decision) bool {
	deadline, ok := ctx.Deadline()
	if !ok || time.Until(deadline) >= d.RetryAfter {
		return false
	}
	info, err := t.tasks.GetTaskInfo(a.queue, a.id)
	return err == nil && !info.Deadline.IsZero() && time.Until(info.Deadline) < d.RetryAfter
}
