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

// Feedback reports the responses of upstreams to the limits of a scheduler.Server. If one job gets a
// 429, no worker calls that upstream until the wait is over. The zero value works. Programs wrap
// their handlers in Middleware, and call CheckResponse in each handler that makes HTTP calls:
//
//	mux.Use(new(tasks.Feedback).Middleware) // once, around the handlers
//	return tasks.CheckResponse(ctx, resp)   // in each handler, with the response to its call
//
// The handlers of http:request and crawl:fetch report their responses themselves. Feedback handles
// responses as follows:
//
//   - 429, or 403 and 503 with a time to wait: it blocks the keys of the job's rule for all
//     workers, and puts the job back at the head of its lane without spending an attempt, as
//     scheduler.RateLimited does. The time counts for the limits that the rule names in
//     BlockOnRateLimit, and for limits whose key is the response's host, such as
//     "api.example.com". If the time counts for no limit, a 403 or 503 only puts the job back. A
//     429 without a time that counts blocks longer with each 429 in a row.
//   - 503 without a time: adaptive limits slow down, and the job fails.
//   - Any other response with an exhausted quota: the keys are blocked until the quota's reset, and
//     the job continues. A Retry-After does not block: with 202, it says when to check an operation.
//   - The latency of each response is reported to adaptive limits.
//   - An error that wraps ErrNotCalled returns the job's permits, because the upstream does not
//     count the call. If the job will be retried, it keeps permits of a funnel, a token bucket and
//     a concurrency limit, so that a host that is down is not called faster than allowed.
//
// Handlers of calls that are not HTTP return scheduler.RateLimited themselves. A Feedback must not
// be copied, and its fields must not change, after its first task.
type Feedback struct {
	// Costs returns the real costs of a finished job, by the limits of its rule. A higher cost than
	// the job's permits is a debt, and a lower one returns permits. result returns the task's
	// result from Results. Nil means that jobs cost the permits that they took.
	Costs func(ctx context.Context, task *asynq.Task, result func() ([]byte, error)) (map[string]int, error)
	// Results is an inspector of the server's queues. Only Costs needs it.
	Results *asynq.Inspector
	// Log receives reports that failed. Nil means slog.Default.
	Log *slog.Logger
}

// Middleware is asynq middleware. It must wrap any middleware that changes errors.
func (f *Feedback) Middleware(next asynq.Handler) asynq.Handler {
	return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		err := next.ProcessTask(context.WithValue(ctx, feedbackKey{}, f), task)
		if err == nil {
			f.settle(ctx, task)
			return nil
		}
		if errors.Is(err, ErrNotCalled) {
			f.returnPermits(ctx, err)
		}
		return f.reportError(ctx, err)
	})
}

// CheckResponse reports a response to the Feedback around a handler, if there is one. It returns a
// *StatusError for every status except 2xx, which the handler must return, wrapped or not. The
// error is wrapped with asynq.SkipRetry if the same call would get the same response, as with
// HTTPHandler. CheckResponse does not read or close the body. It does not report the latency:
// scheduler.ReportLatency does.
func CheckResponse(ctx context.Context, resp *http.Response) error {
	now := time.Now()
	a := Response{Status: resp.StatusCode, Upstream: ReadUpstream(resp.StatusCode, resp.Header, now)}
	if resp.Request != nil && resp.Request.URL != nil {
		a.URL = redact.Query(resp.Request.URL.Redacted())
	}
	report(ctx, a)
	if wrong := checkStatus(a, nil, now); wrong != nil {
		return wrong.handlerError(resp.Header)
	}
	return nil
}

// feedbackKey is the context key of a *Feedback.
type feedbackKey struct{}

// report reports a response to the Feedback around a handler, if there is one. A status of 400 or
// more becomes the handler's error, which reportError reports.
func report(ctx context.Context, a Response) {
	f, ok := ctx.Value(feedbackKey{}).(*Feedback)
	if !ok {
		return
	}
	if a.Latency > 0 {
		scheduler.ReportLatency(ctx, a.Latency)
	}
	if a.Status < http.StatusBadRequest {
		f.blockLimits(ctx, a.URL, a.Upstream.Until)
	}
}

// blockLimits blocks the keys of the job's limits until a time that a response has named, if the time
// counts for these limits.
func (f *Feedback) blockLimits(ctx context.Context, url string, until time.Time) {
	if f.counts(ctx, url, until) {
		scheduler.ReportRateLimit(ctx, until)
	}
}

// blockHost blocks the job's limits whose key is the host.
func blockHost(ctx context.Context, host string, d time.Duration) error {
	rule, _ := scheduler.GetRule(ctx)
	needs := slices.DeleteFunc(slices.Clone(rule.Needs), func(n throttle.Need) bool { return n.Key != host })
	limiter, ok := scheduler.GetLimiter(ctx)
	if !ok || len(needs) == 0 {
		return nil
	}
	return limiter.Internals().BlockFor(ctx, d, needs...)
}

// reportError reports the error of an unexpected status, and returns the job's error: see Feedback.
func (f *Feedback) reportError(ctx context.Context, err error) error {
	status, ok := errors.AsType[*StatusError](err)
	if !ok {
		return err
	}
	until := status.Until
	if !f.counts(ctx, status.URL, until) {
		until = time.Time{}
	}
	mayNameTime := status.Status == http.StatusServiceUnavailable || status.Status == http.StatusForbidden
	switch {
	case status.Status == http.StatusTooManyRequests || mayNameTime && !until.IsZero():
		return &hiddenError{err.Error(), errors.Join(err, scheduler.RateLimited(until))}
	case status.Status == http.StatusServiceUnavailable:
		scheduler.ReportOverload(ctx)
	}
	if mayNameTime && !status.Until.IsZero() {
		f.log().Info("the time in an answer does not count: no limit of the job has the host as its key (see retry_after_scope)", "url", status.URL, "wait", time.Until(status.Until).Round(time.Second))
		again := scheduler.RetryAfter(min(max(0, time.Until(status.Until)), throttle.Day))
		return &hiddenError{err.Error(), errors.Join(err, again)}
	}
	if !until.IsZero() {
		scheduler.ReportRateLimit(ctx, until)
	}
	return err
}

// counts reports whether a time that the host of a URL has named counts for the job's limits. The
// time counts if the rule has BlockOnRateLimit, or no needs. Otherwise some need must have a key,
// and every such key must be the host.
func (f *Feedback) counts(ctx context.Context, address string, until time.Time) bool {
	rule, _ := scheduler.GetRule(ctx)
	u, err := url.Parse(address)
	if until.IsZero() || err != nil || rule.BlockOnRateLimit != nil {
		return !until.IsZero() && err == nil
	}
	keyed := slices.DeleteFunc(slices.Clone(rule.Needs), func(n throttle.Need) bool { return n.Key == "" })
	others := slices.ContainsFunc(keyed, func(n throttle.Need) bool { return n.Key != u.Hostname() && n.Key != u.Host })
	return len(rule.Needs) == 0 || len(keyed) > 0 && !others
}

// settle settles the real costs of a job.
func (f *Feedback) settle(ctx context.Context, task *asynq.Task) {
	if f.Costs == nil {
		return
	}
	costs, err := f.Costs(ctx, task, func() ([]byte, error) { return f.result(ctx) })
	for limit, cost := range costs {
		if err == nil {
			err = scheduler.Settle(ctx, limit, cost)
		}
	}
	if err != nil {
		f.log().Warn("cannot find the real cost of a job: the job keeps the permits that it took", "type", task.Type(), "error", err)
	}
}

func (f *Feedback) result(ctx context.Context) ([]byte, error) {
	if f.Results == nil {
		return nil, errors.New("Feedback.Results is missing: want an inspector, because Costs reads results")
	}
	id, _ := asynq.GetTaskID(ctx)
	queue, _ := asynq.GetQueueName(ctx)
	info, err := f.Results.GetTaskInfo(queue, id)
	if err != nil {
		return nil, err
	}
	return info.Result, nil
}

func (f *Feedback) log() *slog.Logger { return cmp.Or(f.Log, slog.Default()) }
