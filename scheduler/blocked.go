package scheduler

import (
	"context"
	"errors"
	"time"

	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// Block shuts the keys of the running job's rule for every worker until a moment,
// by this process's clock, as Blocked does, and the job goes on: for an answer that
// says that nothing is left. It does nothing outside of handlers of a Server, for a
// job without permits, and for a moment that is over. It takes a round trip, and its
// error is the limiter's: the keys may then be open still.
func Block(ctx context.Context, until time.Time) error {
	h, ok := runningJobOf(ctx)
	wait := time.Until(until)
	if !ok || wait <= 0 || len(h.decision.Taken) == 0 {
		return nil
	}
	return h.server.limiter.BlockFor(ctx, wait, h.rule.shuts()...)
}

// Overloaded tells limits that adapt that the other side was too busy for the running
// job's call and did not say until when, as with 503 Service Unavailable: the keys that
// Blocked would shut slow down as by a refusal, and stay open. What becomes of the job
// is up to the error that the handler returns. It does nothing outside of handlers of a
// Server and for a job without permits. It takes a round trip, and its error is the
// limiter's.
func Overloaded(ctx context.Context) error {
	h, ok := runningJobOf(ctx)
	if !ok || len(h.decision.Taken) == 0 {
		return nil
	}
	return h.server.limiter.Overloaded(ctx, h.decision.At, h.rule.shuts()...)
}

// blocked has the limiter shut what the rule says, and the job wait again, in one
// round trip. It returns nil where the job fails as any other.
//
// Where the limiter cannot be asked nothing is shut, and the job is put back for as
// long as the other side said. It does not count as denied then: without a place in
// a lane it would be taken for a stray, and sent back to ask before.
func (h *runningJob) blocked(ctx context.Context, why *blockedError, err error) error {
	s, shuts, wait := h.server, h.rule.shuts(), time.Until(why.until)
	if len(h.decision.Taken) == 0 || len(shuts) == 0 {
		if why.until.IsZero() {
			return nil
		}
		return &putBackError{error: err, at: why.until}
	}
	if wait <= 0 {
		wait = -1
	}
	s.history.Refused(shuts)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tellTimeout)
	defer cancel()
	began := time.Now()
	d, failed := s.permits.Refused(ctx, s.waitdbJob(h.attempt), waitdb.Refusal{At: h.decision.At, For: wait, Shuts: shuts}, h.rule.Needs...)
	s.noteLimiter(ctx, began, failed)
	if errors.Is(failed, throttle.ErrUnavailable) {
		return &putBackError{error: err, at: time.Now().Add(max(wait, time.Second))}
	}
	if failed != nil {
		return finalError{failed}
	}
	switch d.Outcome {
	case throttle.Denied:
		s.log.Info("blocked by the upstream", "job", h.ID, "limits", meterNames(shuts), "for", d.RetryAfter.Round(time.Second))
		return &putBackError{error: err, at: time.Now().Add(s.delay(d)), denied: true}
	case throttle.TooLate:
		return h.refusedAfterRun(h.rule.OnMaxWait, d)
	case throttle.NoLimit:
		return h.refusedAfterRun(h.rule.OnNoLimit, d)
	}
	return h.refusedAfterRun(Archive, d)
}

// refusedAfterRun is what becomes of a job that may not wait for another try; nil
// where it would run without a permit, and so fails.
func (h *runningJob) refusedAfterRun(action Action, d throttle.Decision) error {
	_, err := refuse(action, d)
	return err
}
