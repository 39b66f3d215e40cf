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

// wrap returns the handler that asynq's server gets. It calls next when the job has its permits, which
// were requested when the job was fetched. Most denied jobs are put back before asynq gets them. The
// others are marked as put back here, because asynq acts on the error that this handler returns.
func (s *Server) wrap(next asynq.Handler) asynq.Handler {
	return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		var j job
		j.ID, _ = asynq.GetTaskID(ctx)
		j.Queue, _ = asynq.GetQueueName(ctx)
		a := s.inFlight.take(j)
		if a == nil { // a later attempt has the job
			release(ctx)
			return asynq.ErrLeaseExpired
		}
		context.AfterFunc(ctx, func() { // asynq is done with the attempt, and its slot is free
			release(ctx)
			s.inFlight.freeSlot(a)
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

// try runs the handler under permits that are still valid when it starts. If the permits of a job
// expire before it starts, try requests new ones.
func (s *Server) try(ctx context.Context, a *attempt, task *asynq.Task, next asynq.Handler) error {
	for {
		if err := a.awaitPermits(ctx); err != nil {
			a.scope.stats.CountEnd(a.name(), a.outcome(ctx, err))
			return err
		}
		a.task = task // which asynq has made, with a writer of its result
		if stale, err := a.run(ctx, next); !stale {
			return err
		}
		a.position, a.isNew = a.notStarted(a.decision), false
		if a.restarts++; a.restarts == 3 {
			s.log.Warn("a job's permits expire before it starts: this machine or the connection to Redis is too slow", "job", a.ID, "queue", a.Queue)
		}
		a.scope.request(a)
	}
}

// awaitPermits waits for the result of the request, and until the permits exist: a waiting job is
// granted its permits some milliseconds before, so that many jobs can be granted in one call. The
// error says why the job does not run. If the job's rule panicked, awaitPermits panics with the
// same value, so that asynq makes its own error of it.
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

// startError returns an error if a job that has its permits must not start. Either its deadline has
// passed, or asynq has abandoned the attempt, for example because the job's lease ended.
func (a *attempt) startError(ctx context.Context) error {
	if err := a.expiredError(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return a.abandoned(ctx)
	}
	return nil
}

// abandoned returns the error that puts a job back which asynq has abandoned before it started.
func (a *attempt) abandoned(ctx context.Context) error {
	return &putBackError{error: ctx.Err(), at: time.Now().Add(time.Second), denied: true, position: a.nextPosition()}
}

// Errors for the span of a run that did not return or did not start.
var (
	errPanicked = errors.New("the handler panicked")
	errStale    = errors.New("the permits had expired: the job requests new ones")
)

// run runs the handler under its permits, and extends its leases while the handler runs. run does not
// recover from a panic, so that asynq makes its own error of it. If the permits have expired, the
// handler is not called, and stale is true.
func (a *attempt) run(ctx context.Context, next asynq.Handler) (stale bool, err error) {
	if err := a.startError(ctx); err != nil {
		a.scope.stats.CountEnd(a.name(), a.outcome(ctx, err))
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
	if a.decision.OK() && a.decision.Age() > freshTime { // checked last, because this process may have been stopped until now
		ended()
		return true, errStale
	}
	err = a.call(ctx, next, ended)
	return false, err
}

// call calls the handler and counts the outcome. A panic counts as a failure. A handler whose time was
// over has failed, whatever it returned, because asynq had abandoned it by then.
func (a *attempt) call(ctx context.Context, next asynq.Handler, ended func() (over bool)) (err error) {
	counted, outcome := a.scope.stats.StartJob(a.name()), a.failure()
	queuedAt := a.queuedAt()
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

// queuedAt returns the time at which the job first joined its lane, by the limiter's clock. It is zero
// for a job without permits.
func (a *attempt) queuedAt() time.Time {
	if at := a.position.queuedAt; !at.IsZero() || len(a.decision.Taken) == 0 {
		return at
	}
	return a.decision.At.Add(-a.decision.Waited)
}

// reportTimeout bounds how long a job that has ended waits for the limiter to take a report.
const reportTimeout = 5 * time.Second

// afterRun turns a handler's error into one that asynq understands, and reports to the limiter: a
// rate limit always, a success only if a limit adapts, which saves all other jobs the round trip. A
// failure of another kind says nothing about limits. A report has a time of its own, because the
// job's context may be over.
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

// rateLimited makes the limiter block the keys of the rule and let the job wait again, in one round
// trip. It returns nil if the job fails like any other.
//
// If the limiter cannot be asked, nothing is blocked, and the job is put back for as long as the
// upstream said. It does not count as denied then: without a place in a lane the dispatcher would
// take it for an orphan, and send it back earlier.
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
	_, result := a.impossible(d) // nil if it would run without permits, and so fails
	return result
}
