package scheduler

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/stats"
	"github.com/headgate/headgate/throttle"
)

// runningJobKey is the context key of a runningJob.
type runningJobKey struct{}

// runningJob is an attempt whose handler runs. The handler finds it in its context, and reports by
// Latency and Settle how its call went; afterRun takes that into account at the end. Goroutines of
// the handler may use it, too.
type runningJob struct {
	server *Server
	attempt
	began time.Time
	ended func() (over bool) // ends the handler's time

	mu       sync.Mutex // for what follows: what the handler says
	decision throttle.Decision
	latency  time.Duration
}

// runningJobOf is what a handler of a Server runs as; ok is false for any other
// context.
func runningJobOf(ctx context.Context) (h *runningJob, ok bool) {
	h, ok = ctx.Value(runningJobKey{}).(*runningJob)
	return h, ok
}

// GetRule returns the rule under which a handler runs, from its context: middleware
// can log what a job needed. It reports false outside of handlers of a Server.
func GetRule(ctx context.Context) (rule Rule, ok bool) {
	h, ok := runningJobOf(ctx)
	if !ok {
		return Rule{}, false
	}
	return h.rule, true
}

// GetDecision returns the decision by which a job runs, from the context of its
// handler: how often it was denied before, and how long it waited. It is the zero
// Decision for a job that needs no limit.
func GetDecision(ctx context.Context) (d throttle.Decision, ok bool) {
	h, ok := runningJobOf(ctx)
	if !ok {
		return d, false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.decision, true
}

// Latency says how long the other side took for the running job's call, for limits
// that adapt to that: the last word counts. Without one it is as long as the
// handler ran. It does nothing outside of handlers of a Server.
func ReportLatency(ctx context.Context, d time.Duration) {
	if h, ok := runningJobOf(ctx); ok {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.latency = d
	}
}

// Settle says what the running job has truly cost of a limit, under each key that
// it has there, such as tokens that were estimated. More is charged at once, less is
// given back: see throttle.Limiter. Of a limit that the job took nothing of it does
// nothing. It may be said again: the last cost counts. It takes a round trip for
// each key. The error is the limiter's, or says that ctx is not that of a Server's
// handler.
func Settle(ctx context.Context, limit string, cost int) error {
	h, ok := runningJobOf(ctx)
	if !ok {
		return errors.New("settle: want the context of a handler of a scheduler.Server")
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range h.decision.Taken {
		if t.Limit != limit {
			continue
		}
		if err := h.server.limiter.Settle(ctx, h.decision, limit, t.Key, cost); err != nil {
			return err
		}
		h.server.history.CountReturned(t, t.Cost-cost)
	}
	return nil
}

// Leave is for handlers of a Server that are about to make the job's call, with their
// connection made. It returns when the call may leave: where a limit gives one call at a
// time, no sooner after the one before, of this process, than the limit says. That is at
// once, unless that one was late. It asks nobody, and does nothing outside of such handlers.
// http:request and crawl:fetch do so.
func Pace(ctx context.Context) {
	h, ok := runningJobOf(ctx)
	if !ok {
		return
	}
	at := h.server.pacing.startAt(h.decision)
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-timer.C:
		h.server.pacing.postpone(h.decision, max(0, time.Since(at)))
	case <-ctx.Done():
	}
}

// since is when the running job came to its lane first, by the limiter's clock; zero
// without permits.
func (h *runningJob) since() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	if since := h.position.queuedAt; !since.IsZero() || len(h.decision.Taken) == 0 {
		return since
	}
	return h.decision.At.Add(-h.decision.Waited)
}

// run has the job run, and counts how it ended: a panic is a failure, too, so that
// is what end says until the handler has returned. One whose time is over has failed,
// whatever it says: asynq, which gives it up at that moment, may or may not hear it.
func (h *runningJob) run(ctx context.Context, next asynq.Handler) (err error) {
	ended, end := h.server.history.StartJob(h.name()), h.failed()
	h.note(func(a *flight) { a.since = h.since() })
	defer func() {
		ended(end)
		failed := end == stats.Failed || end == stats.Archived
		h.note(func(a *flight) {
			a.noted, a.took = failed || end == stats.Done && h.retried > 0, time.Since(h.began)
		})
	}()
	err = next.ProcessTask(ctx, h.task)
	over := h.ended()
	if err = h.afterRun(ctx, err); over {
		err = context.DeadlineExceeded
	}
	if later, ok := errors.AsType[*putBackError](err); ok && !later.denied && later.as == nil {
		later.position = queuePosition{queuedAt: h.since(), retryAt: later.at}
	}
	end = h.end(ctx, err)
	return err
}

// note changes what the server knows of the attempt.
func (h *runningJob) note(change func(*flight)) { h.server.inFlight.note(h.job, h.leaseID, change) }

// tellTimeout bounds how long a job that has ended waits for the limiter to hear of
// it.
const tellTimeout = 5 * time.Second

// judge turns a handler's error into what asynq should make of it, and tells the
// limiter what it should hear: of a refusal always, of a success only where a limit
// learns from it, which saves all others the round trip. A failure of another kind
// says nothing about limits.
func (h *runningJob) afterRun(ctx context.Context, err error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	took := cmp.Or(h.latency, time.Since(h.began))
	if why, ok := errors.AsType[*rateLimitedError](err); ok {
		if result := h.rateLimited(ctx, why, err); result != nil {
			return result
		}
	}
	if err == nil && h.decision.WantsFeedback {
		h.accepted(ctx, took)
	}
	return h.attempt.retryError(err)
}

// accepted tells the limiter that the other side did what the call asked for. If it
// cannot be told it learns of the next one. The job is done by then, so its context
// may be over: the call has a time of its own.
func (h *runningJob) accepted(ctx context.Context, took time.Duration) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tellTimeout)
	defer cancel()
	began := time.Now()
	h.server.noteLimiter(ctx, began, h.server.limiter.Accepted(ctx, h.decision, took))
}
