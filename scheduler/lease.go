package scheduler

import (
	"context"
	"errors"
	"time"

	"github.com/headgate/headgate/throttle"
)

// errLeaseLost is the cause of a cancelled handler context: another job may
// hold its place by now.
var errLeaseLost = errors.New("the lease on a concurrency limit was lost")

// leases are the concurrency permits that a running job holds.
type leases struct {
	decision throttle.Decision
	needs    []throttle.Need
}

// hold extends a job's leases until free is called, which gives them back. A
// lost lease cancels the context.
func (t *Throttler) hold(ctx context.Context, l leases) (_ context.Context, free func()) {
	if l.decision.Lease == 0 {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	t.done.Go(func() {
		ticker := time.NewTicker(l.decision.Lease / 3)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case <-t.stopped: // its handler was given up
				return
			case <-ticker.C:
			}
			held, err := t.limiter.Extend(ctx, l.decision.Holder, l.needs...)
			t.note(err)
			if err == nil && !held {
				t.log.Warn("a job lost its lease and is cancelled", "job", l.decision.Holder, "limit", l.decision.Limit)
				cancel(errLeaseLost)
				return
			}
		}
	})
	return ctx, func() {
		close(done)
		cancel(nil)
		// The job's own context may have ended: its permits go back all the same.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		t.note(t.limiter.Free(ctx, l.decision.Holder, l.needs...))
	}
}
