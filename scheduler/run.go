package scheduler

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/script"
	"github.com/headgate/headgate/internal/stats"
	"github.com/headgate/headgate/internal/usercode"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

const (
	// reportTimeout is the timeout of a handler's reports to the limiter, and of calls to the limiter
	// after the handler has returned.
	reportTimeout = 5 * time.Second
	// maxMargin is the maximum time between the cancellation of a handler and the end of its lease.
	maxMargin = 5 * time.Second
)

var (
	// errLeaseLost is the cause of a canceled handler context: another job may have the permit by
	// now.
	errLeaseLost = errors.New("the lease on a concurrency limit was lost")
	// Errors for the trace span of a run whose handler did not return or did not start.
	errPanicked = errors.New("the handler panicked")
	errStale    = errors.New("the permits had expired: the job requests new ones")
)

// wrap returns the handler that asynq's server gets. The handler waits for the job's permits, which
// were requested when the job was fetched, and calls next. Most denied jobs were put back before
// asynq got them. For other denied jobs, the handler returns an error that makes asynq put them
// back.
func (s *Server) wrap(next asynq.Handler) asynq.Handler {
	return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		id, _ := asynq.GetTaskID(ctx)
		run := ctx.Value(runContextKey{}).(*runContext)
		removeRun := s.running.add(id, run)
		a := s.inFlight.getNumber(attemptNumber(ctx), id)
		if a != nil && !s.inFlight.run(a, run) {
			a = nil
		}
		context.AfterFunc(ctx, func() {
			removeRun()
			endedFirst := run.Err() != nil // before asynq's own context, for example at the job's Timeout
			run.end(nil)
			if a == nil {
				return
			}
			if timer := a.endTimer.Load(); timer != nil {
				timer.Stop()
			}
			leave := func() {
				s.inFlight.leave(a)
				s.keepPutBack(a)
			}
			if endedFirst && !s.inFlight.isWritten(a) {
				// asynq calls functions of the program and writes the attempt's end: see endLease. It
				// writes none if the attempt's lease has ended.
				time.AfterFunc(maxEnd, leave)
				return
			}
			leave() // asynq is done with the attempt
		})
		if a == nil { // asynq has ended the attempt
			return asynq.ErrLeaseExpired
		}
		defer func() {
			s.inFlight.returned(a)
			s.keepPutBack(a)
		}()
		if time.Now().After(a.leaseEnd) { // another server may have the job by now
			go a.releaseLeases()
			return asynq.ErrLeaseExpired
		}
		ctx, cancel := run.withDeadline(ctx)
		defer cancel()
		err := seal(s.try(ctx, a, task, next))
		if later, ok := errors.AsType[*putBackError](err); ok {
			end := *a.end.Load()
			end.putBack = later
			a.end.Store(&end)
		} else if err == nil {
			end := *a.end.Load()
			end.succeeded = true
			a.end.Store(&end)
		}
		return err
	})
}

// try waits for the job's permits and runs the handler. The limiter can grant permits some
// milliseconds before they exist; try waits until they do. If the permits are too old when the
// handler starts, try requests new ones. If RuleFor panicked, try panics with the same value, and
// asynq turns the panic into its own error.
func (s *Server) try(ctx context.Context, a *attempt, task *asynq.Task, next asynq.Handler) error {
	for {
		var err error
		if _, ok := usercode.Receive(ctx, a.done); ok {
			if p, ok := errors.AsType[*usercode.PanicError](a.err); ok {
				panic(p.Value)
			}
			if err = a.err; err == nil {
				sleep(ctx, time.Until(a.startAt))
				err = a.expiredError()
			}
		}
		if err == nil && ctx.Err() != nil { // asynq abandoned the attempt, for example because its lease ended
			err = &putBackError{error: ctx.Err(), at: time.Now().Add(time.Second), denied: true, position: a.nextPosition()}
		}
		if err != nil {
			go a.releaseLeases()
			s.scopeOf(a.Queue).stats.CountEnd(a.statsTask, a.outcome(ctx, err), stats.NotRun)
			return err
		}
		a.task = task // asynq's, with a writer of the job's result
		if stale, err := a.run(ctx, next); !stale {
			return err
		}
		a.refund(ctx)
		a.position, a.isNew = a.nextPosition(), false
		a.scope.requestPermits(a)
	}
}

// permitsTooOld reports whether the attempt's permits are too old to start its handler. It logs that
// this machine is too slow: once if it is too slow for waitdb.MaxWindowAge, and for each job whose
// permits are older than maxPermitAge three times.
func (a *attempt) permitsTooOld() bool {
	age := script.Elapsed(a.decision.TakenAt, time.Now())
	tooOld, hasGrown := age > maxPermitAge, false
	if a.decision.Windowed {
		tooOld, hasGrown = a.scope.permitAge.check(a.decision.TakenAt, age)
	}
	if hasGrown {
		a.scope.log.Warn("jobs of windows start late: this machine or the connection to Redis is too slow", "up_to", maxPermitAge, "job", a.ID, "queue", a.Queue)
	}
	if age > maxPermitAge {
		if a.staleRuns++; a.staleRuns == 3 {
			a.scope.log.Warn("a job's permits expire before it starts: this machine or the connection to Redis is too slow", "job", a.ID, "queue", a.Queue)
		}
	}
	return tooOld
}

// refund gives back permits that the job took and cannot use any more. If a call of Settle fails,
// its permits stay taken.
func (a *attempt) refund(ctx context.Context) {
	ctx, cancel := reportContext(ctx)
	defer cancel()
	for _, t := range a.decision.Taken {
		if a.scope.limiter.Settle(ctx, a.decision.Decision, t.Limit, t.Key, 0) == nil {
			a.scope.stats.CountReturned(t, t.Cost)
		}
	}
}

// run calls the handler, extends the job's leases meanwhile, and counts how the attempt ends. An
// attempt that took too long is a failure, because asynq has abandoned the attempt. If the permits
// are too old, run does not call the handler, and stale is true.
func (a *attempt) run(ctx context.Context, next asynq.Handler) (stale bool, err error) {
	a.began = time.Now()
	ctx, stopTimer := a.startTimer(ctx)
	ctx = context.WithValue(ctx, attemptKey{}, a)
	if a.decision.Lease > 0 {
		var free func()
		ctx, free = a.holdLeases(ctx)
		defer free()
	}
	ctx, traced := a.traceRun(ctx)
	err = errPanicked // if ProcessTask does not return
	defer func() { traced(err) }()
	if a.decision.OK() && a.permitsTooOld() { // checked last, because this process may have been stopped until now
		stopTimer()
		return true, errStale
	}
	a.scope.stats.CountStart(a.statsTask)
	outcome, earliest := a.outcome(ctx, errPanicked), time.Time{}
	queuedAt := a.position.queuedAt
	if queuedAt.IsZero() && len(a.decision.Taken) > 0 {
		queuedAt = a.decision.At.Add(-a.decision.Waited)
	}
	a.end.Store(&attemptEnd{queuedAt: queuedAt, retryPolicy: a.rule.Retry})
	defer func() {
		took := time.Since(a.began)
		a.scope.stats.CountEnd(a.statsTask, outcome, took)
		keep := outcome == stats.Failed || outcome == stats.Archived || outcome == stats.Done && a.retried > 0
		a.end.Store(&attemptEnd{queuedAt: queuedAt, retryPolicy: a.rule.Retry, earliestRetry: earliest, refusals: a.refusals, mustRecord: keep, took: took})
	}()
	returned := a.watchEnd(ctx)
	defer returned() // if ProcessTask panics
	err = next.ProcessTask(ctx, a.task)
	returned()
	a.boundEnd(ctx)
	if _, limited := errors.AsType[*rateLimitedError](err); !limited {
		a.refusals = refusals{}
	}
	earliest = earliestRetry(err)
	over := stopTimer()
	if err = a.afterRun(ctx, err); over {
		err = context.DeadlineExceeded
	}
	if later, ok := errors.AsType[*putBackError](err); ok && !later.denied && later.newPayload == nil {
		later.position = queuePosition{queuedAt: queuedAt, retryAt: later.at}
	}
	outcome = a.outcome(ctx, err)
	return false, err
}

// afterRun turns a handler's error into an error for asynq. It reports a rejected call to the
// limiter, and a success if a limit wants feedback.
//
// If the error wraps several errors, the first of these counts: ErrUnable, RateLimited, PutBackAs,
// SkipRetry or RevokeTask, RetryAfter. For any other error, the rule's retry policy sets the delay,
// or the program's RetryDelayFunc if the rule has no policy. After the policy's last retry the error
// is final, because asynq knows only the job's own MaxRetry.
func (a *attempt) afterRun(ctx context.Context, err error) error {
	a.reports.Lock()
	defer a.reports.Unlock()
	took := cmp.Or(a.latency, time.Since(a.began))
	ctx, cancel := reportContext(ctx)
	defer cancel()
	if isUnable(err) {
		err = a.putBackUnable(err, false)
		if !isUnable(err) {
			a.refund(ctx)
			return err
		}
	}
	if why, ok := errors.AsType[*rateLimitedError](err); ok {
		if result := a.rateLimited(ctx, why, err); result != nil {
			return result
		}
	}
	if err == nil && a.decision.WantsFeedback {
		call := a.scope.limiterHealth.Begin()
		noteLimiter(ctx, call, a.scope.limiter.Accepted(ctx, a.decision.At, took, a.decision.Taken...))
	}
	if as, ok := errors.AsType[*putBackAs](err); ok {
		return &putBackError{error: err, at: time.Now(), newPayload: as}
	}
	if err == nil || forbidsRetry(err) {
		return err
	}
	if d, ok := errors.AsType[retryAfter](err); ok {
		return &putBackError{error: err, at: time.Now().Add(time.Duration(d)), told: !earliestRetry(err).IsZero()}
	}
	if a.rule.Retry == nil {
		return err
	}
	class := a.rule.Retry.class(err)
	if class.MaxRetry != nil && a.retried >= *class.MaxRetry || a.retried >= a.maxRetry {
		return &attemptError{error: err, final: true}
	}
	return &attemptError{error: err, delay: new(class.Delay(a.retried))}
}

// rateLimited makes the limiter block the keys of the rule and put the job into its lane again, in
// one round trip. It returns nil if the job fails like any other, as a job does that was refused more
// than mostRefusals times in a row while the upstream served others.
//
// If the limiter is unavailable, nothing is blocked, and the job is put back until the time that
// the upstream named. That job is not marked as denied, because the dispatcher promotes denied jobs
// that are in no lane.
func (a *attempt) rateLimited(ctx context.Context, why *rateLimitedError, err error) error {
	s, needs, wait := a.scope, a.rule.blockedNeeds(), time.Until(why.until)
	if len(a.decision.Taken) == 0 || len(needs) == 0 {
		if why.until.IsZero() {
			return nil
		}
		return &putBackError{error: err, at: time.Now().Add(min(wait, throttle.Day)), told: wait > 0}
	}
	if wait <= 0 {
		wait = -1
	}
	s.stats.CountRateLimited(needs)
	call := s.limiterHealth.Begin()
	d, failed := s.permits.RateLimited(ctx, s.waitdbJob(a), waitdb.RateLimit{
		At: a.decision.At, For: wait, Blocks: needs,
		Before: a.refusals.last, Alone: a.refusals.alone, MayFail: a.refusals.count >= mostRefusals,
	}, a.rule.Needs...)
	noteLimiter(ctx, call, failed)
	if failed == nil {
		a.refusals = refusals{a.refusals.count + 1, d.At, d.Alone}
	}
	switch {
	case errors.Is(failed, throttle.ErrUnavailable):
		return &putBackError{error: err, at: time.Now().Add(max(min(wait, throttle.Day), time.Second)), told: wait > 0}
	case failed != nil:
		return &attemptError{error: failed, final: true}
	case d.Outcome == throttle.Denied:
		go s.blockOtherShards(wait, needs)
		s.log.Info("blocked by the upstream", "job", a.ID, "refusals", a.refusals.count, "limits", meterNames(needs), "for", cmp.Or(d.Blocked, d.RetryAfter).Round(100*time.Millisecond))
		if d.Fails {
			s.log.Info("the upstream refuses a job again and serves others: that is a failed attempt", "job", a.ID, "refusals", a.refusals.count)
			return nil
		}
		return s.denied(d, err)
	}
	_, result := a.resolveImpossible(d) // nil for ActionRun: the job fails like any other
	return result
}

// holdLeases extends the attempt's leases on concurrency limits until free releases them. It
// extends them even if ctx ends, because the handler can still call the upstream. The lease of a
// limit can change meanwhile, so holdLeases goes by the time that each extension returns. The
// returned context is canceled if a lease is lost, or shortly before the end of a lease that could
// not be extended. So the handler can stop before another job gets the permit.
func (a *attempt) holdLeases(ctx context.Context) (_ context.Context, free func()) {
	s, d, needs := a.scope, a.decision, a.rule.Needs
	held, stop := context.WithCancel(context.WithoutCancel(ctx))
	ctx, cancel := context.WithCancelCause(ctx)
	lost := sync.OnceFunc(func() {
		known := s.limits.Load().byName
		leases := slices.DeleteFunc(slices.Clone(needs), func(n throttle.Need) bool { l, ok := known[n.Limit]; return ok && l.Kind != throttle.Concurrency })
		s.log.Warn("a job lost its lease and is canceled", "job", a.ID, "queue", a.Queue, "limits", meterNames(leases))
		cancel(errLeaseLost)
	})
	// untilCancel returns the time until the cancellation. The parameter sent is when the last call
	// that took or extended the lease was sent.
	untilCancel := func(sent time.Time, lease time.Duration) time.Duration {
		return time.Until(sent.Add(lease - min(lease/10, maxMargin)))
	}
	end := time.AfterFunc(untilCancel(a.requestQueuedAt, d.Lease), lost)
	go func() {
		lease := d.Lease
		for next := lease / 3; ; {
			if sleep(held, next); held.Err() != nil {
				return
			}
			began, call := time.Now(), s.limiterHealth.Begin()
			extended, err := s.permits.Extend(held, d.Holder, needs...)
			noteLimiter(held, call, err)
			switch {
			case held.Err() != nil:
				return
			case err != nil:
				next = lease / 20
			case extended == 0:
				lost()
				return
			default:
				lease, next = extended, extended/3
				end.Reset(untilCancel(began, lease))
			}
		}
	}()
	return ctx, func() {
		end.Stop()
		stop()
		cancel(nil)
		a.releaseLeases()
	}
}

// releaseLeases waits for the result of the attempt's request, and releases the attempt's leases on
// concurrency limits. All other permits count as used.
func (a *attempt) releaseLeases() {
	<-a.done
	if a.decision.Lease == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), reportTimeout)
	defer cancel()
	call := a.scope.limiterHealth.Begin()
	noteLimiter(ctx, call, a.scope.permits.Free(ctx, a.decision.Holder, a.rule.Needs...))
}
