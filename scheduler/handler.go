package scheduler

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/stats"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// wrap returns the handler that asynq's server gets. The handler waits for the job's permits, which
// were requested when the job was fetched, and calls next. Most denied jobs were put back before
// asynq got them. For other denied jobs, the handler returns an error that makes asynq put them
// back.
func (s *Server) wrap(next asynq.Handler) asynq.Handler {
	return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		var j job
		j.ID, _ = asynq.GetTaskID(ctx)
		j.Queue, _ = asynq.GetQueueName(ctx)
		a := s.inFlight.take(j)
		if a == nil { // another attempt of the job runs
			release(ctx)
			return asynq.ErrLeaseExpired
		}
		context.AfterFunc(ctx, func() { // asynq is done with the attempt, and its slot is free
			release(ctx)
			s.inFlight.release(a, false)
		})
		if time.Now().After(a.leaseEnd) { // another server may have the job by now
			go s.releaseUnused(a)
			return asynq.ErrLeaseExpired
		}
		err := s.try(ctx, a, task, next)
		if later, ok := errors.AsType[*putBackError](err); ok {
			a.updateEnd(func(e *attemptEnd) { e.putBack = later })
		}
		return withStorableText(err)
	})
}

// try waits for the job's permits and runs the handler. If the permits are too old when the handler
// starts, try requests new ones.
func (s *Server) try(ctx context.Context, a *attempt, task *asynq.Task, next asynq.Handler) error {
	for {
		if err := a.awaitPermits(ctx); err != nil {
			a.scope.stats.CountEnd(a.statsTask, a.outcome(ctx, err))
			return err
		}
		a.task = task // asynq's, with a writer of the job's result
		if stale, err := a.run(ctx, next); !stale {
			return err
		}
		a.refund(ctx)
		a.position, a.isNew = a.notStarted(a.decision), false
		if a.restarts++; a.restarts == 3 {
			s.log.Warn("a job's permits expire before it starts: this machine or the connection to Redis is too slow", "job", a.ID, "queue", a.Queue)
		}
		a.scope.request(a)
	}
}

// refund gives back permits that the job took and cannot use any more. If it fails, they stay taken.
func (a *attempt) refund(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reportTimeout)
	defer cancel()
	for _, t := range a.decision.Taken {
		if a.scope.limiter.Settle(ctx, a.decision.Decision, t.Limit, t.Key, 0) == nil {
			a.scope.stats.CountReturned(t, t.Cost)
		}
	}
}

// awaitPermits waits for the result of the request, and until the permits exist. A job may be
// granted some milliseconds before that, so that one call can grant many jobs. The error is why the
// job does not run. If the job's rule panicked, awaitPermits panics with the same value, and asynq
// turns the panic into its own error.
func (a *attempt) awaitPermits(ctx context.Context) error {
	select {
	case <-a.done:
	case <-ctx.Done():
		go a.scope.releaseUnused(a)
		return a.abandoned(ctx)
	}
	if p, ok := errors.AsType[*panicError](a.err); ok {
		panic(p.value)
	}
	if a.err == nil {
		sleep(ctx, time.Until(a.startAt))
	}
	return a.err
}

// abandoned returns the error of a job that asynq abandoned before the handler started, for example
// because the job's lease ended. The error puts the job back.
func (a *attempt) abandoned(ctx context.Context) error {
	return &putBackError{error: ctx.Err(), at: time.Now().Add(time.Second), denied: true, position: a.nextPosition()}
}

// Errors for the trace span of a run whose handler did not return or did not start.
var (
	errPanicked = errors.New("the handler panicked")
	errStale    = errors.New("the permits had expired: the job requests new ones")
)

// run starts the handler, and extends the job's leases while the handler runs. run does not recover
// from a panic, so that asynq turns the panic into its own error. If the permits are too old, run
// does not call the handler, and stale is true.
func (a *attempt) run(ctx context.Context, next asynq.Handler) (stale bool, err error) {
	if err = a.expiredError(); err == nil && ctx.Err() != nil {
		err = a.abandoned(ctx)
	}
	if err != nil {
		a.scope.stats.CountEnd(a.statsTask, a.outcome(ctx, err))
		a.freeLeases(ctx)
		return false, err
	}
	a.began = time.Now()
	ctx, ended := a.start(ctx)
	ctx, free := a.holdLeases(context.WithValue(ctx, attemptKey{}, a))
	defer free()
	ctx, traced := a.traceRun(ctx)
	err = errPanicked // unless it returns
	defer func() { traced(err) }()
	if a.decision.OK() && a.decision.Age() > maxPermitAge { // checked last, because this process may have been stopped until now
		ended()
		return true, errStale
	}
	err = a.call(ctx, next, ended)
	return false, err
}

// call calls the handler and counts how the attempt ends. A panic is a failure. An attempt that
// took too long is also a failure, whatever the handler returned: asynq had abandoned the attempt.
func (a *attempt) call(ctx context.Context, next asynq.Handler, ended func() (over bool)) (err error) {
	counted, outcome := a.scope.stats.StartJob(a.statsTask), a.failure()
	queuedAt := a.position.queuedAt
	if queuedAt.IsZero() && len(a.decision.Taken) > 0 {
		queuedAt = a.decision.At.Add(-a.decision.Waited)
	}
	a.updateEnd(func(e *attemptEnd) { e.queuedAt, e.retry = queuedAt, a.rule.Retry })
	defer func() {
		counted(outcome)
		a.updateEnd(func(e *attemptEnd) {
			e.keep = outcome == stats.Failed || outcome == stats.Archived || outcome == stats.Done && a.retried > 0
			e.took = time.Since(a.began)
		})
	}()
	err = next.ProcessTask(ctx, a.task)
	over := ended()
	if err = a.afterRun(ctx, err); over {
		err = context.DeadlineExceeded
	}
	if later, ok := errors.AsType[*putBackError](err); ok && !later.denied && later.as == nil {
		later.position = queuePosition{queuedAt: queuedAt, retryAt: later.at}
	}
	outcome = a.outcome(ctx, err)
	return err
}

// reportTimeout is the longest time for which a job that has ended waits for a report to the
// limiter.
const reportTimeout = 5 * time.Second

// afterRun turns a handler's error into an error for asynq, and reports the outcome to the limiter:
// a rejected call always, a success only if a limit adapts to latencies. Other failures have
// nothing to do with limits. A report has a timeout of its own, because the job's context may have
// ended.
func (a *attempt) afterRun(ctx context.Context, err error) error {
	a.reports.Lock()
	defer a.reports.Unlock()
	a.mu.Lock()
	took := cmp.Or(a.latency, time.Since(a.began))
	a.mu.Unlock()
	report, cancel := context.WithTimeout(context.WithoutCancel(ctx), reportTimeout)
	defer cancel()
	if why, ok := errors.AsType[*rateLimitedError](err); ok {
		if result := a.rateLimited(report, why, err); result != nil {
			return result
		}
	}
	if err == nil && a.decision.WantsFeedback {
		began := time.Now()
		a.scope.noteLimiter(report, began, a.scope.limiter.Accepted(report, a.decision.At, took, a.decision.Taken...))
	}
	return a.retryError(err)
}

// rateLimited makes the limiter block the keys of the rule and put the job into its lane again, in
// one round trip. It returns nil if the job fails like any other.
//
// If the limiter is unavailable, nothing is blocked, and the job is put back until the time that
// the upstream named. That job does not count as denied, because it is in no lane: the dispatcher
// would take the job for an orphan and promote it earlier.
func (a *attempt) rateLimited(ctx context.Context, why *rateLimitedError, err error) error {
	s, needs, wait := a.scope, a.rule.blockedNeeds(), time.Until(why.until)
	if len(a.decision.Taken) == 0 || len(needs) == 0 {
		if why.until.IsZero() {
			return nil
		}
		return &putBackError{error: err, at: time.Now().Add(min(wait, throttle.Day))}
	}
	if wait <= 0 {
		wait = -1
	}
	s.stats.CountRateLimited(needs)
	began := time.Now()
	d, failed := s.permits.RateLimited(ctx, s.waitdbJob(a), waitdb.RateLimit{At: a.decision.At, For: wait, Blocks: needs}, a.rule.Needs...)
	s.noteLimiter(ctx, began, failed)
	switch {
	case errors.Is(failed, throttle.ErrUnavailable):
		return &putBackError{error: err, at: time.Now().Add(max(min(wait, throttle.Day), time.Second))}
	case failed != nil:
		return finalError{failed}
	case d.Outcome == throttle.Denied:
		go s.blockParts(wait, needs)
		s.log.Info("blocked by the upstream", "job", a.ID, "limits", meterNames(needs), "for", d.RetryAfter.Round(time.Second))
		return s.denied(d, err)
	}
	_, result := a.resolveImpossible(d) // nil for ActionRun: the job fails like any other
	return result
}
