package scheduler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

const (
	// ruleTimeout is how long a batch waits for the results of RuleFor. Jobs without a result by then
	// request their permits separately.
	ruleTimeout = 2 * time.Millisecond
	// asynqTimeout is asynq's timeout of a job that has neither a timeout nor a deadline.
	asynqTimeout = 30 * time.Minute
	// maxBatch is the maximum number of jobs in one dequeue and in one request for permits, because
	// Redis serves no other client while a script runs.
	maxBatch = 64
	// deniedWindow is for how long after a denial fetched jobs wait for the limiter's decision
	// before asynq gets them.
	deniedWindow = time.Second
	// maxPermitAge is the maximum age of permits when the handler starts, because the limiter counts
	// them at the time of the request.
	maxPermitAge = 100 * time.Millisecond
)

// permits is the part of *waitdb.DB that a server calls for each job. Tests wrap it.
type permits interface {
	AcquireAll(ctx context.Context, requests ...waitdb.AcquireRequest) []waitdb.AcquireResult
	Extend(ctx context.Context, holder string, needs ...throttle.Need) (bool, error)
	Free(ctx context.Context, holder string, needs ...throttle.Need) error
	RateLimited(ctx context.Context, job waitdb.Job, limited waitdb.RateLimit, needs ...throttle.Need) (waitdb.Decision, error)
}

// request requests permits for the jobs of one batch, in their order. It does not wait for the
// results. A slow RuleFor delays its own job only. The job fails if RuleFor has not returned by the
// end of the job's Timeout or Deadline.
func (s *scope) request(all ...*attempt) {
	rules, ends := make([]<-chan ruleResult, len(all)), make([]time.Time, len(all))
	for i, a := range all {
		a.done, a.decision, ends[i] = make(chan struct{}), waitdb.Decision{}, a.ruleEnd(time.Now())
		rules[i] = s.askRule(a.job, a.task, ends[i])
	}
	wait, cancel := context.WithTimeout(context.Background(), ruleTimeout)
	defer cancel()
	ready := make([]*attempt, 0, len(all))
	for i, a := range all {
		if s.awaitRule(wait, a, rules[i]) {
			ready = append(ready, a)
			continue
		}
		go func() {
			ctx, cancel := context.WithDeadline(context.Background(), ends[i])
			defer cancel()
			if !s.awaitRule(ctx, a, rules[i]) {
				a.err = errRuleTimeout
			}
			s.requests.add(a)
		}()
	}
	s.requests.add(ready...)
}

// ruleEnd returns when a call of RuleFor that begins now times out: at the end of the job's timeout
// or deadline. If the deadline has passed already, only the timeout counts.
func (t jobTimeout) ruleEnd(now time.Time) time.Time {
	if end := t.end(now); end.After(now) {
		return end
	}
	return now.Add(cmp.Or(t.timeout, asynqTimeout))
}

var (
	// errNoRule fails a job whose RuleFor called runtime.Goexit.
	errNoRule = errors.New("rules: RuleFor did not return")
	// errRuleTimeout fails a job whose RuleFor did not return before the job's timeout or deadline.
	errRuleTimeout = fmt.Errorf("rules: RuleFor has not returned: %w", context.DeadlineExceeded)
)

type ruleResult struct {
	rule Rule
	err  error
}

// askRule calls the program's RuleFor in a new goroutine, because it may panic or never return. Its
// context is derived from the program's BaseContext, holds the job and ends at end. A panic becomes
// a panicError.
func (s *Server) askRule(j job, task *asynq.Task, end time.Time) <-chan ruleResult {
	result := make(chan ruleResult, 1)
	go func() {
		r := ruleResult{err: errNoRule}
		defer func() {
			if value := recover(); value != nil {
				r = ruleResult{err: s.userCode.panicked("the rules' RuleFor", value)}
			}
			result <- r
		}()
		base, err := s.baseContext()
		if err != nil {
			r.err = err
			return
		}
		base = context.WithValue(context.WithValue(base, jobKey{}, j), queueKey{}, s.shards.QueueOf(j.Queue))
		ctx, cancel := context.WithDeadline(base, end)
		defer cancel()
		r.rule, r.err = s.rules.RuleFor(ctx, task)
	}()
	return result
}

// receive returns a value from the channel, or false if the context ends first.
func receive[T any](ctx context.Context, values <-chan T) (value T, ok bool) {
	select {
	case value = <-values:
		return value, true
	default: // a value that is ready is returned even if the context has ended
	}
	select {
	case value = <-values:
		return value, true
	case <-ctx.Done():
		return value, false
	}
}

// awaitRule waits until RuleFor has returned, and reports false if the context ends first.
func (s *scope) awaitRule(ctx context.Context, a *attempt, rule <-chan ruleResult) bool {
	r, ok := receive(ctx, rule)
	if !ok {
		return false
	}
	a.rule, a.err = r.rule, r.err
	switch {
	case errors.Is(r.err, throttle.ErrUnavailable):
		a.decision, a.err = s.outcomeError(a, waitdb.Decision{}, r.err)
	case r.err == nil:
		if err := s.shards.Check(s.shards.QueueOf(a.Queue), s.shard, r.rule.Needs); err != nil {
			a.err = finalError{err}
		} else if a.err = a.expiredError(); a.err != nil && len(a.rule.Needs) > 0 {
			go func() { _, _ = s.limiter.Forget(context.Background(), a.job) }() // if Forget fails, the dispatcher forgets the job
		}
	}
	return true
}

// requestQueue sends requests to the limiter in the order in which the jobs were fetched. It makes
// one call at a time, and sends the requests that are added meanwhile in the next one.
type requestQueue struct {
	acquire func([]*attempt) (denied bool) // requests permits and reports any denial

	mu      sync.Mutex
	waiting []*attempt
	busy    bool
	denied  time.Time // time of the last denial
}

// add queues the requests of jobs whose RuleFor has returned. A job without needs is finished at once.
func (q *requestQueue) add(ready ...*attempt) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, a := range ready {
		if a.sentAt = time.Now(); a.err == nil && len(a.rule.Needs) > 0 {
			q.waiting = append(q.waiting, a)
		} else {
			a.finish()
		}
	}
	if len(q.waiting) > 0 && !q.busy {
		q.busy = true
		go q.sendAll()
	}
}

// sendAll sends requests until none is waiting.
func (q *requestQueue) sendAll() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.waiting) > 0 {
		n := min(len(q.waiting), maxBatch)
		batch := q.waiting[:n:n]
		q.waiting = q.waiting[n:]
		q.mu.Unlock()
		denied := q.acquire(batch)
		q.mu.Lock()
		if denied {
			q.denied = time.Now()
		}
		for _, a := range batch {
			a.finish()
		}
	}
	q.waiting, q.busy = nil, false
}

// deniedRecently reports whether a job was denied within the deniedWindow.
func (q *requestQueue) deniedRecently() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return time.Since(q.denied) < deniedWindow
}

// finish publishes the result of a request.
func (a *attempt) finish() {
	a.startAt = time.Now().Add(a.decision.BeginIn)
	close(a.done)
}

// acquire requests the permits of the jobs from the limiter, in their order, and reports whether any
// job was denied. It first defines the limits of the rules, if that has not been done.
func (s *scope) acquire(all []*attempt) (denied bool) {
	ctx := context.Background()
	results := make([]waitdb.AcquireResult, len(all))
	if err := s.define(ctx); err != nil {
		for i := range results {
			results[i].Err = err
		}
	} else {
		requests := make([]waitdb.AcquireRequest, len(all))
		for i, a := range all {
			requests[i] = waitdb.AcquireRequest{Job: s.waitdbJob(a), Needs: a.rule.Needs}
		}
		began := time.Now()
		results = s.permits.AcquireAll(ctx, requests...)
		for _, r := range results {
			s.noteLimiter(ctx, began, r.Err)
		}
	}
	for i, a := range all {
		d, err := a.position.adjust(results[i].Decision), results[i].Err
		s.stats.ObserveLimiterCall(time.Since(a.sentAt), err != nil)
		if err == nil {
			s.stats.CountDecision(a.rule.Needs, d)
		}
		a.decision, a.err = s.outcomeError(a, d, err)
		denied = denied || d.Outcome == throttle.Denied
	}
	return denied
}

// waitdbJob returns the attempt's job as the limiter needs it. Its deadline is one second before
// the job's own, so that a job that waits too long ends with the limiter's reason for the wait.
func (s *scope) waitdbJob(a *attempt) waitdb.Job {
	j := waitdb.Job{
		JobID: a.job, Priority: waitdb.Priority(priorityOf(a.task, a.rule)), MaxWait: a.rule.MaxWait, Grant: s.grant,
		MaxAdvance: 2 * waitdb.Advance, Fair: a.rule.FairnessKey, Weight: a.rule.FairnessWeight, New: a.isNew,
	}
	if a.rule.RetryPosition != PositionBack || a.position.notStarted {
		j.QueuedAt = a.position.queuedAt
	}
	if a.position.notStarted {
		j.WaitingSince = a.position.retryAt
	}
	if !a.deadline.IsZero() {
		j.Deadline = a.deadline.Add(-time.Second)
	}
	return j
}

// outcomeError returns nil if the job may run, or else an error that makes asynq put the job back,
// archive it or delete it. If the limiter is unavailable, the job is put back for a second: a job
// must not run without permits, and must not spend its retries on an outage.
func (s *scope) outcomeError(a *attempt, d waitdb.Decision, err error) (waitdb.Decision, error) {
	switch {
	case errors.Is(err, throttle.ErrUnavailable):
		// If the job already waits in its lane, the dispatcher can promote it.
		return d, &putBackError{error: err, at: time.Now().Add(time.Second), denied: true}
	case err != nil:
		return d, finalError{err}
	case d.Outcome == throttle.Allowed:
		return d, nil
	case d.Outcome == throttle.Denied:
		s.log.LogAttrs(context.Background(), slog.LevelDebug, "job denied", slog.String("type", a.task.Type()), slog.String("id", a.ID),
			slog.String("queue", a.Queue), slog.String("limit", d.Limit), slog.String("key", d.Key), slog.Duration("retry_after", d.RetryAfter))
		return d, s.denied(d, errors.New(d.String()))
	}
	return a.resolveImpossible(d)
}

// denied returns the error of a job that waits for permits. asynq keeps the job in its retry set
// until the dispatcher promotes it. The retry time is a fallback and later than the estimated wait,
// because a job that is retried too early is denied again. If promotion is disabled, the retry time
// is the estimated wait.
func (s *Server) denied(d waitdb.Decision, err error) *putBackError {
	delay := d.PutBack
	if !s.canPromote.Load() {
		delay = d.RetryAfter
	}
	return &putBackError{error: err, at: time.Now().Add(delay), denied: true}
}

// resolveImpossible returns the error of a job that cannot get its permits, or nil if the rule lets it
// run without them. In that case the decision is zero, because there are no permits to settle or free.
func (a *attempt) resolveImpossible(d waitdb.Decision) (waitdb.Decision, error) {
	action := ActionArchive
	switch d.Outcome {
	case throttle.Expired:
		action = a.rule.OnMaxWait
	case throttle.NoLimit:
		action = a.rule.OnNoLimit
	}
	switch action {
	case ActionRun:
		return waitdb.Decision{}, nil
	case ActionDrop:
		return d, &ImpossibleError{d.Decision, asynq.RevokeTask}
	}
	return d, &ImpossibleError{d.Decision, asynq.SkipRetry}
}
