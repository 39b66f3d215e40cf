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
//     scheduler.RateLimited does. A 429 without a time blocks longer with each 429 in a row: see
//     docs/configuration.md.
//   - 503 without a time: adaptive limits slow down, and the job fails.
//   - Any other response with an exhausted quota: the keys are blocked until the quota's reset, and
//     the job continues. A Retry-After does not block: with 202, it says when to check an operation.
//   - The latency of each response is reported to adaptive limits.
//   - An error that wraps ErrNotCalled returns the job's permits, because the upstream does not
//     count the call. If the job will be retried, it keeps permits of a funnel and of a token
//     bucket, so that a host that is down is not called faster than allowed.
//
// Handlers of calls that are not HTTP return scheduler.RateLimited themselves. A Feedback must not
// be copied, and its fields must not change, after its first task.
type Feedback struct {
	// BlockUntil returns the time until which a response with an Upstream.Until blocks the limits of
	// a task: that time, an earlier one, or the zero Time for no block.
	//
	// Nil means that the response blocks the limits that the rule names in BlockOnRateLimit, and
	// limits whose key is the response's host, such as "api.example.com", for at most a day.
	BlockUntil func(ctx context.Context, task *asynq.Task, a Response) time.Time
	// Costs returns the real costs of a finished job, by the limits of its rule. If a cost is higher
	// than the job's permits, the difference is a debt; if it is lower, the difference is returned.
	// Costs is called for every task; result returns the task's result from Results. Nil means that
	// jobs cost the permits that they took.
	Costs func(ctx context.Context, task *asynq.Task, result func() ([]byte, error)) (map[string]int, error)
	// Results is an inspector of the server's queues. Only Costs needs it.
	Results *asynq.Inspector
	// Limiter is the server's limiter. If it is nil, a Crawl-delay blocks no limits, and a job that
	// made no call and will be retried keeps its permits.
	Limiter *throttle.Limiter
	// Log receives reports that failed. Nil means slog.Default.
	Log *slog.Logger
}

// Middleware is asynq middleware. It must be outside of middleware that changes errors.
func (f *Feedback) Middleware(next asynq.Handler) asynq.Handler {
	return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		err := next.ProcessTask(context.WithValue(ctx, runKey{}, &run{f, task}), task)
		if err == nil {
			f.settle(ctx, task)
			return nil
		}
		if errors.Is(err, ErrNotCalled) {
			f.giveBack(ctx, err)
		}
		return f.reportError(ctx, task, err)
	})
}

// CheckResponse reports a response to the Feedback around a handler, if there is one. It returns a
// *StatusError for every status except 2xx, which the handler must return, wrapped or not. The error
// of a 4xx is wrapped with asynq.SkipRetry if the same call would get the same response, as with
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
		return wrong.ends(resp.Header)
	}
	return nil
}

// run is a task that a handler runs within a Feedback.
type run struct {
	feedback *Feedback
	task     *asynq.Task
}

// runKey is the context key of a *run.
type runKey struct{}

// report reports a response to the Feedback around a handler, if there is one. A status of 400 or
// more becomes the handler's error, which reportError reports.
func report(ctx context.Context, a Response) {
	if _, ok := ctx.Value(runKey{}).(*run); !ok {
		return
	}
	if a.Latency > 0 {
		scheduler.ReportLatency(ctx, a.Latency)
	}
	if a.Status < http.StatusBadRequest {
		blockLimits(ctx, a)
	}
}

// blockLimits blocks the keys of the job's limits until the time that a response asks for, if the
// Feedback around the handler accepts the time.
func blockLimits(ctx context.Context, a Response) {
	r, ok := ctx.Value(runKey{}).(*run)
	if !ok || a.Upstream.Until.IsZero() {
		return
	}
	if until := r.feedback.blockUntil(ctx, r.task, a); !until.IsZero() {
		scheduler.ReportRateLimit(ctx, until)
	}
}

// blockHost blocks the job's limits whose key is the host.
func blockHost(ctx context.Context, host string, d time.Duration) error {
	rule, _ := scheduler.GetRule(ctx)
	needs := slices.DeleteFunc(slices.Clone(rule.Needs), func(n throttle.Need) bool { return n.Key != host })
	r, ok := ctx.Value(runKey{}).(*run)
	if !ok || r.feedback.Limiter == nil || len(needs) == 0 {
		return nil
	}
	return r.feedback.Limiter.Internals().BlockFor(ctx, d, needs...)
}

// reportError reports the error of an unexpected status, and returns the job's error: see Feedback.
func (f *Feedback) reportError(ctx context.Context, task *asynq.Task, err error) error {
	status, ok := errors.AsType[*StatusError](err)
	if !ok {
		return err
	}
	var until time.Time
	if !status.Until.IsZero() {
		until = f.blockUntil(ctx, task, Response{URL: status.URL, Status: status.Status, Upstream: Upstream{Until: status.Until}})
	}
	timed := status.Status == http.StatusServiceUnavailable || status.Status == http.StatusForbidden
	switch {
	case status.Status == http.StatusTooManyRequests || timed && !until.IsZero():
		return &hiddenError{err.Error(), errors.Join(err, scheduler.RateLimited(until))}
	case status.Status == http.StatusServiceUnavailable:
		scheduler.ReportOverload(ctx)
	}
	if timed && !status.Until.IsZero() {
		again := scheduler.RetryAfter(min(max(0, time.Until(status.Until)), throttle.Day))
		return &hiddenError{err.Error(), errors.Join(err, again)}
	}
	if !until.IsZero() {
		scheduler.ReportRateLimit(ctx, until)
	}
	return err
}

// blockUntil calls BlockUntil or its default.
func (f *Feedback) blockUntil(ctx context.Context, task *asynq.Task, a Response) time.Time {
	if f.BlockUntil != nil {
		return f.BlockUntil(ctx, task, a)
	}
	rule, _ := scheduler.GetRule(ctx)
	if rule.BlockOnRateLimit == nil && !onlyOf(rule.Needs, a.URL) {
		if a.Status >= http.StatusBadRequest {
			f.log().Info("ignored the time in an answer: no limit of the job has the host as its key, and its rule has no BlockOnRateLimit", "type", task.Type(), "said", time.Until(a.Upstream.Until).Round(time.Second))
		}
		return time.Time{}
	}
	if latest := time.Now().Add(throttle.Day); a.Upstream.Until.After(latest) {
		return latest
	}
	return a.Upstream.Until
}

// onlyOf reports whether a block of the needs affects the host of a URL alone: every need with a
// key has that host as its key, and there is one. A job without needs affects no host.
func onlyOf(needs []throttle.Need, address string) bool {
	u, err := url.Parse(address)
	if err != nil {
		return false
	}
	keyed := slices.DeleteFunc(slices.Clone(needs), func(n throttle.Need) bool { return n.Key == "" })
	others := slices.ContainsFunc(keyed, func(n throttle.Need) bool { return n.Key != u.Hostname() && n.Key != u.Host })
	return len(needs) == 0 || len(keyed) > 0 && !others
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
		f.log().Warn("the cost of a job is unknown, so it keeps the cost that was taken", "type", task.Type(), "error", err)
	}
}

func (f *Feedback) result(ctx context.Context) ([]byte, error) {
	if f.Results == nil {
		return nil, errors.New("a Feedback with Costs that read results wants Results")
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
