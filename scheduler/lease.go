package scheduler

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/throttle"
)

// errLeaseLost is the cause of a cancelled handler context: another job may
// hold its place by now.
var errLeaseLost = errors.New("the lease on a concurrency limit was lost")

// freeTimeout bounds how long a job that has ended waits for its leases to be
// given back.
const freeTimeout = 5 * time.Second

// hold keeps the leases that an attempt got of concurrency limits, until free is
// called, which gives them back: as long as its handler runs, whatever becomes
// of the job's context. The context that it returns is cancelled when a lease
// was lost, or could not be extended, some time before it ends in Redis.
//
// So an attempt that asynq has given up, for its timeout or at a shutdown, holds its
// place until its handler returns: it still calls the other side. since is from
// before the leases were asked for.
func (s *Server) hold(ctx context.Context, a attempt, since time.Time, d throttle.Decision) (_ context.Context, free func()) {
	if d.Lease == 0 {
		return ctx, func() {}
	}
	kept, stop := context.WithCancel(context.WithoutCancel(ctx))
	ctx, cancel := context.WithCancelCause(ctx)
	lost := sync.OnceFunc(func() {
		s.log.Warn("a job lost its lease and is cancelled", "job", a.ID, "queue", a.Queue, "limits", meterNames(s.leasing(a.rule.Needs)))
		cancel(errLeaseLost)
	})
	l := &lease{Decision: d, needs: a.rule.Needs, lost: lost}
	l.end = time.AfterFunc(time.Until(l.endsAt(since)), lost)
	go s.extend(kept, l)
	return ctx, func() {
		l.end.Stop()
		stop()
		cancel(nil)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), freeTimeout)
		defer cancel()
		began := time.Now()
		s.noteLimiter(ctx, began, s.permits.Free(ctx, d.Holder, l.needs...))
	}
}

// leasing returns the needs whose limits give leases; all if the server does not know the limits.
func (s *Server) leasing(needs []throttle.Need) []throttle.Need {
	known := s.limits.defined()
	leases := slices.DeleteFunc(slices.Clone(needs), func(n throttle.Need) bool { return known[n.Limit].Kind != throttle.Concurrency })
	if len(leases) == 0 {
		return needs
	}
	return leases
}

// A lease is what one attempt holds: all of its places, which were taken in one
// step and are extended in one.
type lease struct {
	throttle.Decision
	needs []throttle.Need
	end   *time.Timer // calls lost when the lease runs out
	lost  func()
}

// longestMargin bounds how long before the end of its lease a handler is told.
const longestMargin = 5 * time.Second

// endsAt is when the handler is told that its lease ends, if it is not extended after since, when
// the call that took or renewed it was sent. That is a tenth of the lease before the lease ends in
// Redis: the handler needs the time to stop its work before another job has its place.
func (l *lease) endsAt(since time.Time) time.Time {
	return since.Add(l.Lease - min(l.Lease/10, longestMargin))
}

// extend renews a lease until ctx ends or the lease is lost: at each third of its
// life. While the limiter is unavailable it tries more often, for the lease runs
// out. It goes on when the timer has cancelled the handler: as long as that has not
// returned, its place should not go to another.
func (s *Server) extend(ctx context.Context, l *lease) {
	next := time.NewTimer(l.Lease / 3)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-next.C:
		}
		began := time.Now()
		held, err := s.permits.Extend(ctx, l.Holder, l.needs...)
		s.noteLimiter(ctx, began, err)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			next.Reset(l.Lease / 20)
		case !held:
			l.lost()
			return
		default:
			l.end.Reset(time.Until(l.endsAt(began)))
			next.Reset(l.Lease / 3)
		}
	}
}
