package tasks

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/redact"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/throttle"
)

// Feedback reports the responses of upstreams to the limits of a scheduler.Server: a 429 blocks the
// keys of the job's limits for all workers. The zero value works. Programs wrap their handlers in
// Middleware. Each handler that makes HTTP calls passes the responses to CheckResponse:
//
//	mux.Use(new(tasks.Feedback).Middleware) // once, around the handlers
//	return tasks.CheckResponse(ctx, resp)   // in each handler, with the response to its call
//
// The handlers of http:request and crawl:fetch need no CheckResponse. A response can name the time
// from which the upstream accepts calls again. This time counts if the job's rule has
// BlockOnRateLimit, if the rule has no needs, or if the only key of the rule's needs is the
// response's host, such as "api.example.com". Feedback handles responses as follows:
//
//   - 429 or another status of a rate limit (418, 420, 430, 529), or 403 and 503 with a time that
//     counts: as with scheduler.RateLimited, the keys of the job's rule are blocked for all workers
//     until that time, and the job is put back without spending an attempt, unless it alone is
//     refused again and again. A rate limit without such a time blocks longer with each in a row.
//   - 403 and 503 with a time that does not count: the job is put back until that time, for at most
//     a day, without spending an attempt. No key is blocked.
//   - 503 without a time that counts: adaptive limits slow down. If the 503 names no time, the job
//     fails.
//   - Any other response with an exhausted quota: if the time of the quota's reset counts, the keys
//     are blocked until then. The job ends as usual. A Retry-After blocks no keys: with 202, it says
//     when to check an operation. The next attempt of a job that fails is not before the time of the
//     Retry-After or the reset.
//   - An error that wraps ErrNotCalled: the job's permits are returned. If the job will be retried,
//     it keeps the permits of funnels, token buckets and concurrency limits.
//
// Handlers of calls that are not HTTP return scheduler.RateLimited themselves. The fields must not
// change after the first task.
type Feedback struct {
	// Costs returns the real costs of a job that succeeded, by the name of the limit: see
	// scheduler.Settle. result reads the task's result from Results. If Costs is nil, jobs keep the
	// permits that they took.
	Costs func(ctx context.Context, task *asynq.Task, result func() ([]byte, error)) (map[string]int, error)
	// Judge says which responses are a rate limit, or a failure to retry, although their status says
	// otherwise: an API may tell a rate limit by a 403 with a reason in its body, or by a 200. It is
	// called for each response of http:request, crawl:fetch and CheckResponse. Nil means none.
	Judge func(ctx context.Context, task *asynq.Task, r Response) Verdict
	// Results is an inspector of the server's queues. Only Costs needs it.
	Results *asynq.Inspector
	// Log receives reports that failed. Nil means slog.Default.
	Log *slog.Logger
}

// Middleware is asynq middleware. Register it before any middleware that changes errors, because
// the server needs the errors that Middleware returns.
func (f *Feedback) Middleware(next asynq.Handler) asynq.Handler {
	return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		err := next.ProcessTask(f.withJudge(ctx, task), task)
		if err == nil && f.Costs != nil {
			f.settle(ctx, task)
		}
		if errors.Is(err, ErrNotCalled) {
			f.returnPermits(ctx, err)
		}
		return f.reportError(ctx, err)
	})
}

// CheckResponse reports a status below 400 to the limits of a scheduler.Server, and returns nil for
// any 2xx. For other statuses it returns an error that is or wraps a *StatusError. The handler must
// return this error, wrapped or not, and Feedback reports it. The error also wraps asynq.SkipRetry
// if the same call would get the same response. CheckResponse does not close the body or report the
// latency. It reads no body, except for Feedback.Judge, after which the body can be read from its
// beginning.
func CheckResponse(ctx context.Context, resp *http.Response) error {
	address := ""
	if resp.Request != nil && resp.Request.URL != nil {
		address = redact.Query(resp.Request.URL.Redacted())
	}
	status := newStatusError(resp, address)
	status.judge(ctx, resp)
	status.report(ctx)
	return status.unexpected(nil)
}

// report blocks the keys of the job's rule until countedUntil, if this time is not zero and
// Feedback does not get the response as an error.
func (e *StatusError) report(ctx context.Context) {
	if e.Status >= http.StatusBadRequest || e.verdict != VerdictByStatus {
		return
	}
	e.block(ctx)
}

func (e *StatusError) block(ctx context.Context) {
	if until := e.countedUntil(ctx); !until.IsZero() {
		scheduler.ReportRateLimit(ctx, until)
	}
}

// countedUntil returns the time that the response names, or the zero Time if this time does not
// count: see Feedback. If some needs have a key, the needs without a key are ignored.
func (e *StatusError) countedUntil(ctx context.Context) time.Time {
	rule, _ := scheduler.GetRule(ctx)
	u, err := url.Parse(e.URL)
	if err != nil {
		return time.Time{}
	}
	keyed := slices.DeleteFunc(slices.Clone(rule.Needs), func(n throttle.Need) bool { return n.Key == "" })
	other := func(n throttle.Need) bool { return n.Key != u.Hostname() && n.Key != u.Host }
	if rule.BlockOnRateLimit == nil && len(rule.Needs) > 0 && (len(keyed) == 0 || slices.ContainsFunc(keyed, other)) {
		return time.Time{}
	}
	return e.Until
}

// reportError reports the error of an unexpected status, and returns the job's error: see Feedback.
func (f *Feedback) reportError(ctx context.Context, err error) error {
	status, ok := errors.AsType[*StatusError](err)
	if !ok {
		return err
	}
	until := status.countedUntil(ctx)
	mayNameTime := status.Status == http.StatusServiceUnavailable || status.Status == http.StatusForbidden
	limited := status.isRateLimit() || mayNameTime && !until.IsZero()
	if !limited && status.Status == http.StatusServiceUnavailable {
		scheduler.ReportOverload(ctx)
	}
	switch {
	case limited:
		return &hiddenError{err.Error(), errors.Join(err, scheduler.RateLimited(until))}
	case mayNameTime && !status.Until.IsZero():
		wait := time.Until(status.Until)
		f.log().Info("the time in an answer does not count: no limit of the job has the host as its key (see retry_after_scope)", "url", status.URL, "wait", wait.Round(time.Second))
		return &hiddenError{err.Error(), errors.Join(err, scheduler.RetryAfter(min(max(0, wait), throttle.Day)))}
	}
	status.block(ctx)
	return err
}

// returnPermits returns the permits of a job that made no call. A job that is archived returns all
// permits. A job that will be retried keeps the permits of funnels, token buckets and concurrency
// limits, because it must not call a host that is down faster than these limits allow.
func (f *Feedback) returnPermits(ctx context.Context, failed error) {
	ctx = context.WithoutCancel(ctx) // the limits' kinds are needed after a cancellation, too
	limiter, _ := scheduler.GetLimiter(ctx)
	d, _ := scheduler.GetDecision(ctx)
	for _, t := range d.Taken {
		if !errors.Is(failed, asynq.SkipRetry) {
			l, _, err := limiter.Internals().Key(ctx, t.Limit, t.Key)
			if err == nil && (l.Kind == throttle.Funnel || l.Kind == throttle.TokenBucket || l.Kind == throttle.Concurrency) {
				continue
			}
		}
		if err := scheduler.Settle(ctx, t.Limit, 0); err != nil {
			f.log().Warn("cannot return the permits of a job that made no call", "limit", t.Limit, "error", err)
		}
	}
}

// settle replaces the permits that a job took of each limit by the real cost that Costs returns.
func (f *Feedback) settle(ctx context.Context, task *asynq.Task) {
	costs, err := f.Costs(ctx, task, func() ([]byte, error) {
		if f.Results == nil {
			return nil, errors.New("Feedback.Costs reads the job's result: want an inspector in Feedback.Results")
		}
		id, _ := asynq.GetTaskID(ctx)
		queue, _ := asynq.GetQueueName(ctx)
		info, err := f.Results.GetTaskInfo(queue, id)
		if err != nil {
			return nil, err
		}
		return info.Result, nil
	})
	for limit, cost := range costs {
		if err == nil {
			err = scheduler.Settle(ctx, limit, cost)
		}
	}
	if err != nil {
		f.log().Warn("cannot find the real cost of a job: the job keeps the permits that it took", "type", task.Type(), "error", err)
	}
}

func (f *Feedback) log() *slog.Logger { return cmp.Or(f.Log, slog.Default()) }
