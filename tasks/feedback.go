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

// Feedback tells the limits of a scheduler.Server what the upstream of a call says, so
// that a 429 that one job gets keeps all workers from calling until it is over. The zero
// value will do. It takes two lines, the Middleware around the handlers, and CheckAnswer in
// each handler that makes calls of its own:
//
//	mux.Use(new(tasks.Feedback).Middleware) // once, around the handlers
//	return tasks.CheckAnswer(ctx, resp)     // in each handler, with the answer to its call
//
// Without the second line Feedback hears nothing of the answer, and does nothing. Only the
// handlers of http:request and crawl:fetch tell it by themselves. What becomes of an answer:
//
//   - 429, or 403 and 503 with a time to come back: the keys of the job's rule are shut for
//     every worker, and the job waits at the head of its lane, as by scheduler.RateLimited. It
//     spends no attempt. If no time is told they are shut for a time that grows with each
//     refusal in a row: see docs/configuration.md.
//   - 503 without a time: limits that adapt slow down, and the job fails.
//   - Any other answer that reports a used-up quota, such as a 200: the keys are
//     blocked until the quota's reset, and the job goes on as it would. A Retry-After
//     blocks nothing there: with 202, for example, it says when to look at an operation.
//   - The latency of each answer is told to limits that adapt.
//   - An error that wraps ErrNotCalled gives the job's permits back, because the upstream
//     counts no call that did not leave. If the job will be retried, a funnel and a token bucket
//     keep theirs, so that a host which is down is not tried faster than they let calls through.
//
// Times are those of Retry-After, RateLimit and X-RateLimit: see ReadUpstream. Handlers of
// calls that are not HTTP return scheduler.RateLimited themselves. A Feedback must not be
// copied, nor its fields changed, after its first task.
type Feedback struct {
	// Told says until when an answer shuts the limits of a task that tells a time,
	// a.Upstream.Until: until then, until sooner, or, with the zero Time, as if it told none.
	//
	// Nil trusts an answer with the limits that the rule names in its Blocks, and with
	// those whose key is the host that answers, such as "api.example.com": what it says
	// concerns no other host. It is trusted for a day at most.
	Told func(ctx context.Context, task *asynq.Task, a Answer) time.Time
	// Costs is what a job that is done has truly cost, by the limits of its rule: more than
	// was taken is a debt, less is given back. It is asked for every task; result reads what
	// the handler has written from Results. Nil leaves all jobs at what was taken.
	Costs func(ctx context.Context, task *asynq.Task, result func() ([]byte, error)) (map[string]int, error)
	// Results is asynq's view of the server's queues. Only Costs wants it.
	Results *asynq.Inspector
	// Limiter is the server's. It blocks a host for its Crawl-delay, and the host of a job that
	// made no call and will be retried. Without it such a job's permits stay used.
	Limiter *throttle.Limiter
	// Log hears what an answer did not get, and what Redis did not take. Nil means slog's
	// default.
	Log *slog.Logger
}

// Middleware is for asynq's mux: mux.Use(feedback.Middleware). It goes outside of
// middleware that itself looks at errors.
func (f *Feedback) Middleware(next asynq.Handler) asynq.Handler {
	return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		err := next.ProcessTask(context.WithValue(ctx, hearing{}, &heard{f, task}), task)
		if err == nil {
			f.settle(ctx, task)
			return nil
		}
		if errors.Is(err, ErrNotCalled) {
			f.giveBack(ctx, err)
		}
		return f.refused(ctx, task, err)
	})
}

// CheckAnswer is for handlers that make calls of their own. It tells the Feedback around
// the handler what the answer says of limits, and returns a *StatusError for every status
// but 2xx, which the handler returns, wrapped or as it is. A 4xx comes wrapped with
// asynq.SkipRetry where the same call would only be refused again, as from HTTPHandler.
// Without a Feedback it only returns the error. It does not read or close the body.
//
// How long the answer took it does not know: scheduler.ReportLatency tells that.
func CheckAnswer(ctx context.Context, resp *http.Response) error {
	now := time.Now()
	a := Answer{Status: resp.StatusCode, Upstream: ReadUpstream(resp.StatusCode, resp.Header, now)}
	if resp.Request != nil && resp.Request.URL != nil {
		a.URL = redact.Query(resp.Request.URL.Redacted())
	}
	tell(ctx, a)
	if wrong := checkStatus(a, nil, now); wrong != nil {
		return wrong.ends(resp.Header)
	}
	return nil
}

// hearing is the key of a context whose handler's answers are heard of.
type hearing struct{}

type heard struct {
	by   *Feedback
	task *asynq.Task
}

// tell tells the Feedback around a handler of an answer, if there is one. What refuses
// comes as an error, too, and is left to that.
func tell(ctx context.Context, a Answer) {
	if _, ok := ctx.Value(hearing{}).(*heard); !ok {
		return
	}
	if a.Latency > 0 {
		scheduler.ReportLatency(ctx, a.Latency)
	}
	if a.Status < http.StatusBadRequest {
		block(ctx, a)
	}
}

// refused is what becomes of a job whose call had another status than expected: see
// Feedback.
func (f *Feedback) refused(ctx context.Context, task *asynq.Task, err error) error {
	status, ok := errors.AsType[*StatusError](err)
	if !ok {
		return err
	}
	var told time.Time
	if !status.Until.IsZero() {
		told = f.told(ctx, task, Answer{URL: status.URL, Status: status.Status, Upstream: Upstream{Until: status.Until}})
	}
	switch status.Status {
	case http.StatusTooManyRequests:
		return &hiddenError{err.Error(), errors.Join(err, scheduler.RateLimited(told))}
	case http.StatusServiceUnavailable, http.StatusForbidden:
		if !told.IsZero() {
			return &hiddenError{err.Error(), errors.Join(err, scheduler.RateLimited(told))}
		}
		if status.Status == http.StatusServiceUnavailable {
			scheduler.ReportOverload(ctx)
		}
		if !status.Until.IsZero() {
			again := scheduler.RetryAfter(min(max(0, time.Until(status.Until)), throttle.Day))
			return &hiddenError{err.Error(), errors.Join(err, again)}
		}
	}
	f.shut(ctx, told)
	return err
}

// told is Told, or what is told without one.
func (f *Feedback) told(ctx context.Context, task *asynq.Task, a Answer) time.Time {
	if f.Told != nil {
		return f.Told(ctx, task, a)
	}
	rule, _ := scheduler.GetRule(ctx)
	if rule.BlockOnRateLimit == nil && !onlyOf(rule.Needs, a.URL) {
		if a.Status >= http.StatusBadRequest {
			f.log().Info("the time that an answer says does not count: no limit of the job has the host as its key, and its rule has no Blocks", "type", task.Type(), "said", time.Until(a.Upstream.Until).Round(time.Second))
		}
		return time.Time{}
	}
	if latest := time.Now().Add(throttle.Day); a.Upstream.Until.After(latest) {
		return latest
	}
	return a.Upstream.Until
}

// onlyOf reports whether what a refusal shuts concerns the host of a URL alone: all needs
// with a key, which is that host. A job that needs nothing concerns nobody.
func onlyOf(needs []throttle.Need, address string) bool {
	u, err := url.Parse(address)
	if err != nil {
		return false
	}
	keyed := slices.DeleteFunc(slices.Clone(needs), func(n throttle.Need) bool { return n.Key == "" })
	others := slices.ContainsFunc(keyed, func(n throttle.Need) bool { return n.Key != u.Hostname() && n.Key != u.Host })
	return len(needs) == 0 || len(keyed) > 0 && !others
}

// shut shuts what a refusal would until a moment, if there is one.
func (f *Feedback) shut(ctx context.Context, until time.Time) {
	if !until.IsZero() {
		scheduler.ReportRateLimit(ctx, until)
	}
}

// settle charges what a job has truly cost. What cannot be told stays at what was taken.
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
		f.log().Warn("a job counts as what was taken for it: what it has cost could not be told", "type", task.Type(), "error", err)
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

// block blocks the keys of the job's limits for as long as an answer asks, as far as the
// Feedback around the handler believes the answer. The job goes on.
func block(ctx context.Context, a Answer) {
	if h, ok := ctx.Value(hearing{}).(*heard); ok && !a.Upstream.Until.IsZero() {
		h.by.shut(ctx, h.by.told(ctx, h.task, a))
	}
}

// blockHost blocks those of the job's limits whose key is the host.
func blockHost(ctx context.Context, host string, d time.Duration) error {
	rule, _ := scheduler.GetRule(ctx)
	needs := slices.DeleteFunc(slices.Clone(rule.Needs), func(n throttle.Need) bool { return n.Key != host })
	h, ok := ctx.Value(hearing{}).(*heard)
	if !ok || h.by.Limiter == nil || len(needs) == 0 {
		return nil
	}
	return h.by.Limiter.Internals().BlockFor(ctx, d, needs...)
}
