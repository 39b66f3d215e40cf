package scheduler

import (
	"context"
	"errors"
	"time"

	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// ReportRateLimit blocks the keys of the running job's rule for all workers until the given time,
// by this process's clock, as RateLimited does, but the job continues. It is for a response that
// says that no calls are left. It does nothing outside of handlers of a Server, for a job without
// permits, and for a time that has passed. It takes a round trip. If that fails, the Server logs
// it, and the keys may stay open.
func ReportRateLimit(ctx context.Context, until time.Time) {
	h, ok := runningJobOf(ctx)
	wait := time.Until(until)
	if !ok || wait <= 0 || len(h.decision.Taken) == 0 {
		return
	}
	h.logFailedReport(h.server.limiter.Internals().BlockFor(ctx, wait, h.rule.blockedNeeds()...))
}

// ReportOverload slows down adaptive limits because the upstream was too busy for the running
// job's call and named no time, as with 503 Service Unavailable. It concerns the keys that
// RateLimited would block; they stay open. What becomes of the job is decided by the error that
// the handler returns. It does nothing outside of handlers of a Server and for a job without
// permits. It takes a round trip. If that fails, the Server logs it.
func ReportOverload(ctx context.Context) {
	if h, ok := runningJobOf(ctx); ok && len(h.decision.Taken) > 0 {
		h.logFailedReport(h.server.limiter.Overloaded(ctx, h.decision.At, h.rule.blockedNeeds()...))
	}
}

func (h *runningJob) logFailedReport(err error) {
	if err != nil {
		h.server.log.Warn("could not tell the limiter what the upstream said", "job", h.ID, "error", err)
	}
}

// blocked has the limiter shut what the rule says, and the job wait again, in one
// round trip. It returns nil where the job fails as any other.
//
// Where the limiter cannot be asked nothing is shut, and the job is put back for as
// long as the other side said. It does not count as denied then: without a place in
// a lane it would be taken for a stray, and sent back to ask before.
func (h *runningJob) rateLimited(ctx context.Context, why *rateLimitedError, err error) error {
	s, shuts, wait := h.server, h.rule.blockedNeeds(), time.Until(why.until)
	if len(h.decision.Taken) == 0 || len(shuts) == 0 {
		if why.until.IsZero() {
			return nil
		}
		return &putBackError{error: err, at: why.until}
	}
	if wait <= 0 {
		wait = -1
	}
	s.history.CountRateLimited(shuts)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tellTimeout)
	defer cancel()
	began := time.Now()
	d, failed := s.permits.RateLimited(ctx, s.waitdbJob(h.attempt), waitdb.RateLimit{At: h.decision.At, For: wait, Blocks: shuts}, h.rule.Needs...)
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
	case throttle.Expired:
		return h.impossibleAfterRun(h.rule.OnMaxWait, d)
	case throttle.NoLimit:
		return h.impossibleAfterRun(h.rule.OnNoLimit, d)
	}
	return h.impossibleAfterRun(ActionArchive, d)
}

// refusedAfterRun is what becomes of a job that may not wait for another try; nil
// where it would run without a permit, and so fails.
func (h *runningJob) impossibleAfterRun(action Action, d throttle.Decision) error {
	_, err := refuse(action, d)
	return err
}
