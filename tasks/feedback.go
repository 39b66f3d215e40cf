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

// Feedback reports to the limits of a scheduler.Server what the upstream of a call says. If one
// job gets a 429, no worker calls that upstream until the wait is over. The zero value works.
// Programs add the Middleware around their handlers, and CheckResponse to each handler that makes
// calls of its own:
//
//	mux.Use(new(tasks.Feedback).Middleware) // once, around the handlers
//	return tasks.CheckResponse(ctx, resp)     // in each handler, with the answer to its call
//
// Without CheckResponse, Feedback does not see the answer and does nothing. The handlers of
// http:request and crawl:fetch report their answers themselves. Feedback does this:
//
//   - 429, or 403 and 503 with a time to come back: it blocks the keys of the job's rule for
//     all workers, and the job waits at the head of its lane, as with scheduler.RateLimited.
//     That spends no attempt. Without a time the block grows with each 429 in a row: see
//     docs/configuration.md.
//   - 503 without a time: adaptive limits slow down, and the job fails.
//   - Any other answer with an exhausted quota, such as a 200: the keys are blocked until
//     the quota's reset, and the job continues. A Retry-After blocks nothing then: with
//     202, for example, it says when to check an operation.
//   - The latency of each answer is reported to adaptive limits.
//   - An error that wraps ErrNotCalled returns the job's permits, because the upstream does not
//     count a call that did not leave. If the job will be retried, a funnel and a token
//     bucket keep theirs, so that a host that is down is not called faster than allowed.
//
// Times come from Retry-After, RateLimit and X-RateLimit: see ReadUpstream. Handlers of
// calls that are not HTTP return scheduler.RateLimited themselves. A Feedback must not be
// copied, nor its fields changed, after its first task.
type Feedback struct {
	// BlockUntil decides until when an answer blocks the limits of a task, if it gives a time:
	// a.Upstream.Until, an earlier time, or the zero Time to ignore the time.
	//
	// Nil accepts the time for the limits that the rule names in BlockOnRateLimit, and for
	// limits whose key is the host that answered, such as "api.example.com", for a day at most.
	BlockUntil func(ctx context.Context, task *asynq.Task, a Response) time.Time
	// Costs returns what a finished job has really cost, by the limits of its rule. A higher
	// cost than the job took is a debt, the rest of a lower one is returned. It is called for
	// every task; result reads what the handler has written from Results. Nil keeps the
	// costs that were taken.
	Costs func(ctx context.Context, task *asynq.Task, result func() ([]byte, error)) (map[string]int, error)
	// Results is asynq's inspector of the server's queues. Only Costs needs it.
	Results *asynq.Inspector
	// Limiter is the server's. It blocks a host for its Crawl-delay, and tells which permits of
	// a job that made no call and will be retried are returned. Without it they stay used.
	Limiter *throttle.Limiter
	// Log gets what could not be reported. Nil means slog's default.
	Log *slog.Logger
}

// Middleware is for asynq's mux: mux.Use(feedback.Middleware). It belongs outside of
// middleware that changes errors.
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

// CheckResponse is for handlers that make calls of their own. It reports the answer to the
// Feedback around the handler, and returns a *StatusError for every status except 2xx, which the
// handler returns, wrapped or not. A 4xx comes wrapped with asynq.SkipRetry if the same call
// would get the same answer, as with HTTPHandler. Without a Feedback it only returns the error.
// It does not read or close the body.
//
// CheckResponse does not know the answer's latency: scheduler.ReportLatency reports that.
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

// report reports an answer to the Feedback around a handler, if there is one. An answer of 400
// or more becomes the handler's error, which reportError reports.
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

// blockLimits blocks the keys of the job's limits for as long as an answer asks, if the Feedback
// around the handler accepts that. The job continues.
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

// reportError reports the unexpected status of a call, and returns the job's error: see Feedback.
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

// blockUntil is BlockUntil, or its default.
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

// settle charges what a job has really cost.
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
