package scheduler

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/throttle"
)

// errLeaseLost is the cause of a canceled handler context: another job may have the permit by now.
var errLeaseLost = errors.New("the lease on a concurrency limit was lost")

const (
	// freeTimeout is the timeout for releasing the leases of a job that has ended.
	freeTimeout = 5 * time.Second
	// maxMargin is the maximum time between the cancellation of a handler and the end of its lease.
	maxMargin = 5 * time.Second
)

// holdLeases extends the attempt's leases on concurrency limits until free is called, even if ctx
// ends. asynq gives an attempt up after a timeout or at a shutdown, but the handler may still call
// the upstream until it returns. free releases the leases. The returned context is canceled if a lease
// is lost, or shortly before the end of a lease that could not be extended.
func (a *attempt) holdLeases(ctx context.Context) (_ context.Context, free func()) {
	if a.decision.Lease == 0 {
		return ctx, func() {}
	}
	needs := a.rule.Needs
	leaseCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
	ctx, cancel := context.WithCancelCause(ctx)
	lost := sync.OnceFunc(func() {
		a.scope.log.Warn("a job lost its lease and is canceled", "job", a.ID, "queue", a.Queue, "limits", meterNames(a.scope.leaseNeeds(needs)))
		cancel(errLeaseLost)
	})
	end := time.AfterFunc(untilCancel(a.decision.Lease, a.sentAt), lost)
	go a.scope.extendLeases(leaseCtx, a.decision.Decision, needs, end, lost)
	return ctx, func() {
		end.Stop()
		stop()
		cancel(nil)
		a.freeLeases(leaseCtx)
	}
}

// freeLeases releases the attempt's leases, if it has any.
func (a *attempt) freeLeases(ctx context.Context) {
	if a.decision.Lease == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), freeTimeout)
	defer cancel()
	began := time.Now()
	a.scope.noteLimiter(ctx, began, a.scope.permits.Free(ctx, a.decision.Holder, a.rule.Needs...))
}

// leaseNeeds returns the needs on concurrency limits, or all needs if the server's limits are not
// defined yet.
func (s *scope) leaseNeeds(needs []throttle.Need) []throttle.Need {
	known := s.limits.defined()
	leases := slices.DeleteFunc(slices.Clone(needs), func(n throttle.Need) bool { return known[n.Limit].Kind != throttle.Concurrency })
	if len(leases) == 0 {
		return needs
	}
	return leases
}

// untilCancel returns the time until a handler is canceled if its lease is not extended again. since
// is when the last call that took or extended the lease was sent. The cancellation is a tenth of the
// lease before its end, so that the handler can stop before another job gets the permit.
func untilCancel(lease time.Duration, since time.Time) time.Duration {
	return time.Until(since.Add(lease - min(lease/10, maxMargin)))
}

// extendLeases extends the leases after each third of their duration, until ctx ends or a lease is
// lost. While the limiter is unavailable, it tries more often. It continues after the handler was
// canceled, because no other job should get the permit before the handler returns.
func (s *scope) extendLeases(ctx context.Context, d throttle.Decision, needs []throttle.Need, end *time.Timer, lost func()) {
	for next := d.Lease / 3; ; {
		if sleep(ctx, next); ctx.Err() != nil {
			return
		}
		began := time.Now()
		held, err := s.permits.Extend(ctx, d.Holder, needs...)
		s.noteLimiter(ctx, began, err)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			next = d.Lease / 20
		case !held:
			lost()
			return
		default:
			end.Reset(untilCancel(d.Lease, began))
			next = d.Lease / 3
		}
	}
}
