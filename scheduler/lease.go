package scheduler

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/throttle"
)

// errLeaseLost is the cause of a canceled handler context: another job may hold its place by now.
var errLeaseLost = errors.New("the lease on a concurrency limit was lost")

const (
	// freeTimeout bounds how long a job that has ended waits for its leases to be given back.
	freeTimeout = 5 * time.Second
	// longestMargin bounds how long before the end of its lease a handler is told.
	maxMargin = 5 * time.Second
)

// holdLeases keeps the attempt's leases on concurrency limits until free is called, which gives
// them back: as long as its handler runs, whatever becomes of the job's context. An attempt that
// asynq has given up, for its timeout or at a shutdown, so holds its place until its handler
// returns, because it may still call the upstream. The returned context is canceled if a lease was
// lost, or some time before it ends in Redis if it could not be extended.
func (a *attempt) holdLeases(ctx context.Context) (_ context.Context, free func()) {
	if a.decision.Lease == 0 {
		return ctx, func() {}
	}
	needs := a.rule.Needs
	kept, stop := context.WithCancel(context.WithoutCancel(ctx))
	ctx, cancel := context.WithCancelCause(ctx)
	lost := sync.OnceFunc(func() {
		a.scope.log.Warn("a job lost its lease and is cancelled", "job", a.ID, "queue", a.Queue, "limits", meterNames(a.scope.leaseNeeds(needs)))
		cancel(errLeaseLost)
	})
	end := time.AfterFunc(untilCancel(a.decision.Lease, a.sentAt), lost)
	go a.scope.extendLeases(kept, a.decision.Decision, needs, end, lost)
	return ctx, func() {
		end.Stop()
		stop()
		cancel(nil)
		a.freeLeases(kept)
	}
}

// freeLeases gives the attempt's leases back, if it has any.
func (a *attempt) freeLeases(ctx context.Context) {
	if a.decision.Lease == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), freeTimeout)
	defer cancel()
	began := time.Now()
	a.scope.noteLimiter(ctx, began, a.scope.permits.Free(ctx, a.decision.Holder, a.rule.Needs...))
}

// leasing returns the needs whose limits give leases; all if the server does not know the limits.
func (s *scope) leaseNeeds(needs []throttle.Need) []throttle.Need {
	known := s.limits.defined()
	leases := slices.DeleteFunc(slices.Clone(needs), func(n throttle.Need) bool { return known[n.Limit].Kind != throttle.Concurrency })
	if len(leases) == 0 {
		return needs
	}
	return leases
}

// timeToEnd returns how long until a handler is told that its lease ends, if the lease is not
// extended after since, when the call that took or extended it was sent. That is a tenth of the
// lease before it ends in Redis: the handler needs the time to stop its work before another job has
// its place.
func untilCancel(lease time.Duration, since time.Time) time.Duration {
	return time.Until(since.Add(lease - min(lease/10, maxMargin)))
}

// extendLeases extends the leases until ctx ends or a lease is lost, at each third of their time.
// While the limiter is unavailable it tries more often. It goes on after end has canceled the
// handler: until the handler has returned, its place should not go to another job.
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
