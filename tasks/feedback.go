package tasks

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"sync"
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
//     every worker, and the job waits at the head of its lane, as by scheduler.Blocked. It
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
// calls that are not HTTP return scheduler.Blocked themselves. A Feedback must not be
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
	// Limiter is the server's. CrawlDelay wants it, and so does a job that made no call and will
	// be retried. Without it such a job's permits stay used.
	Limiter interface {
		Key(ctx context.Context, limit, key string) (throttle.Limit, throttle.KeyState, error)
		SetKey(ctx context.Context, limit, key string, o throttle.Override) error
		BlockFor(ctx context.Context, d time.Duration, needs ...throttle.Need) error
	}
	// Log hears what an answer did not get, and what Redis did not take. Nil means slog's
	// default.
	Log *slog.Logger

	delayDropped sync.Once // when a Crawl-delay is first heard of that no limit can keep
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
// How long the answer took it does not know: scheduler.Latency tells that.
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
	h, ok := ctx.Value(hearing{}).(*heard)
	if !ok {
		return
	}
	if a.Latency > 0 {
		scheduler.Latency(ctx, a.Latency)
	}
	if a.Status < http.StatusBadRequest && !a.Upstream.Until.IsZero() {
		h.by.shut(ctx, h.by.told(ctx, h.task, a))
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
		return &hiddenError{err.Error(), errors.Join(err, scheduler.Blocked(told))}
	case http.StatusServiceUnavailable, http.StatusForbidden:
		if !told.IsZero() {
			return &hiddenError{err.Error(), errors.Join(err, scheduler.Blocked(told))}
		}
		if status.Status == http.StatusServiceUnavailable {
			if err := scheduler.Overloaded(ctx); err != nil {
				f.log().Warn("could not slow a limit down for a side that is too busy", "error", err)
			}
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
	if rule.Blocks == nil && !onlyOf(rule.Needs, a.URL) {
		if a.Status >= http.StatusBadRequest {
			f.log().Info("the other side says when to come back, and shuts no limit until then: the rule names none in Blocks, and the key of none is its host", "type", task.Type(), "until", a.Upstream.Until)
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
	if until.IsZero() {
		return
	}
	if err := scheduler.Block(ctx, until); err != nil {
		f.log().Warn("could not shut a limit as the other side asks", "error", err)
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

// delayLife is how long a Crawl-delay holds, as robots.txt does.
const delayLife = 24 * time.Hour

// CrawlDelay is for CrawlHandler.Delay: it has a host be called no more often than its
// robots.txt asks, by all workers. Funnels and token buckets of which the job's host is the
// key count so for the host, for a day at a time; what somebody set slower stays.
//
// It is told before each request, and asks the limiter what the host counts by: somebody may
// have changed that, or Redis have lost it. The key is shut for the delay when it is set,
// since the permit of the request that brought it came at the rate before.
func (f *Feedback) CrawlDelay(ctx context.Context, host string, delay time.Duration) error {
	rule, _ := scheduler.GetRule(ctx)
	kept := false
	for _, n := range rule.Needs {
		if n.Key != host {
			continue
		}
		l, state, err := f.Limiter.Key(ctx, n.Limit, host)
		if errors.Is(err, throttle.ErrNoLimit) { // deleted since
			continue
		}
		if err != nil {
			return err
		}
		kept = kept || spaces(l.Kind)
		o, ok := delayed(l, state.Override, delay)
		if !ok {
			continue
		}
		if err := f.Limiter.SetKey(ctx, n.Limit, host, o); err != nil {
			return err
		}
		if err := f.Limiter.BlockFor(ctx, delay, n); err != nil {
			return err
		}
		f.log().Info("keeping a Crawl-delay", "limit", n.Limit, "host", host, "delay", delay)
	}
	if !kept {
		f.delayDropped.Do(func() { f.log().Warn(delayNotKept, "host", host, "delay", delay) })
	}
	return nil
}

// delayNotKept is said once, when the first host asks for what no limit can keep.
const delayNotKept = "a Crawl-delay of robots.txt is not kept: crawl:fetch wants a limit of kind funnel or token_bucket with key: host(payload.url)"

// spaces reports whether limits of a kind keep calls apart.
func spaces(k throttle.Kind) bool { return k == throttle.Funnel || k == throttle.TokenBucket }

// delayed is what a host is to count by that asks for a Crawl-delay, under a limit and
// what is its own there now. ok is false where that is slow enough, or the limit of a
// kind that knows no intervals. What somebody said slower stays, and what was said
// without an end gets none; what was told before is told again when half of its time
// is over.
func delayed(l throttle.Limit, own throttle.Override, delay time.Duration) (o throttle.Override, ok bool) {
	if !spaces(l.Kind) {
		return o, false
	}
	now, told := l.With(own), throttle.Every(delay)
	fast := now.Rate.Per/time.Duration(now.Rate.N) < delay
	before := own.For > 0 && own.Rate == told
	o = throttle.Override{Rate: own.Rate, Capacity: 1, For: own.For}
	if fast {
		o.Rate = told
	}
	if own == (throttle.Override{}) || own.For > 0 && fast || before {
		o.For = delayLife
	}
	return o, fast || now.Capacity > 1 || before && own.For < delayLife/2
}
