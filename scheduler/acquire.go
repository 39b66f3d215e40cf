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
	// ruleTime is how long a batch waits for its slowest rule. Jobs whose rule takes longer request
	// permits on their own.
	ruleTimeout = 2 * time.Millisecond
	// asynqTimeout is how long asynq lets a job run that has neither a timeout nor a deadline.
	asynqTimeout = 30 * time.Minute
	// maxBatch is how many jobs are fetched at once at most, and how many request permits in one
	// script: Redis serves no other client meanwhile.
	maxBatch = 64
	// deniedRecently is for how long after a denial jobs are kept from asynq until it is known
	// which of them may run.
	deniedWindow = time.Second
	// freshTime is how old permits may be when the handler starts: a permit is for one moment.
	maxPermitAge = 100 * time.Millisecond
)

// permits is what a server asks for each job. *waitdb.DB implements it; tests look on.
type permits interface {
	AcquireAll(ctx context.Context, asks ...waitdb.AcquireRequest) []waitdb.AcquireResult
	Extend(ctx context.Context, holder string, needs ...throttle.Need) (bool, error)
	Free(ctx context.Context, holder string, needs ...throttle.Need) error
	RateLimited(ctx context.Context, job waitdb.Job, limited waitdb.RateLimit, needs ...throttle.Need) (waitdb.Decision, error)
}

// request requests permits for the jobs of one batch, in their order, and returns before the
// results are there. A slow rule delays only its own job. If the rule has not returned when the
// job's Timeout or Deadline is over, the job fails.
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

// ruleEnd is when a rule that is asked now has used up all of the job's time. A deadline that is
// over already does not count, because it says nothing about the rule.
func (t jobTimeout) ruleEnd(now time.Time) time.Time {
	if end := t.end(now); end.After(now) {
		return end
	}
	return now.Add(cmp.Or(t.timeout, asynqTimeout))
}

var (
	// errNoRule fails a job whose rule ended its goroutine instead of returning.
	errNoRule = errors.New("rules: RuleFor did not return")
	// errRuleTime fails a job whose rule took all of the job's time.
	errRuleTimeout = fmt.Errorf("rules: RuleFor has not returned: %w", context.DeadlineExceeded)
)

type ruleResult struct {
	rule Rule
	err  error
}

// askRule calls the program's RuleFor in a goroutine of its own, because it may panic or never
// return. Its context is the program's, tells which job it is, and ends at the given time. A panic
// becomes a panicError.
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

// receive returns a value of a channel, or false if none is there when the context ends.
func receive[T any](ctx context.Context, values <-chan T) (value T, ok bool) {
	select {
	case value = <-values:
		return value, true
	default: // a value that is there counts even if the context has ended
	}
	select {
	case value = <-values:
		return value, true
	case <-ctx.Done():
		return value, false
	}
}

// awaitRule waits for a job's rule until the context ends, and reports whether it came.
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
			go func() { _, _ = s.limiter.Forget(context.Background(), a.job) }() // if it fails, the dispatcher does it
		}
	}
	return true
}

// requestQueue sends requests to the limiter in the order in which the jobs were fetched. Requests
// that arrive while the limiter answers go together with the next call.
type requestQueue struct {
	acquire func([]*attempt) (denied bool) // asks the limiter for jobs' permits

	mu      sync.Mutex
	waiting []*attempt
	busy    bool
	denied  time.Time // when a job was denied last
}

// add queues the requests of jobs whose rules are known.
func (o *requestQueue) add(ready ...*attempt) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, a := range ready {
		if a.sentAt = time.Now(); a.err == nil && len(a.rule.Needs) > 0 {
			o.waiting = append(o.waiting, a)
		} else {
			a.finish()
		}
	}
	if len(o.waiting) > 0 && !o.busy {
		o.busy = true
		go o.sendAll()
	}
}

// sendAll sends requests until none is left.
func (o *requestQueue) sendAll() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.waiting) > 0 {
		n := min(len(o.waiting), maxBatch)
		some := o.waiting[:n:n]
		o.waiting = o.waiting[n:]
		o.mu.Unlock()
		denied := o.acquire(some)
		o.mu.Lock()
		if denied {
			o.denied = time.Now()
		}
		for _, a := range some {
			a.finish()
		}
	}
	o.waiting, o.busy = nil, false
}

// deniedRecently reports whether a job was denied within the last second.
func (o *requestQueue) deniedRecently() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return time.Since(o.denied) < deniedWindow
}

// finish publishes the result of a request.
func (a *attempt) finish() {
	a.startAt = time.Now().Add(a.decision.BeginIn)
	close(a.done)
}

// acquire asks the limiter for the permits of jobs, in their order, and reports whether it denied
// any of them. The limiter gets the limits of the rules first, so that no job is refused because
// its limit is not defined yet.
func (s *scope) acquire(all []*attempt) (denied bool) {
	ctx := context.Background()
	answers := make([]waitdb.AcquireResult, len(all))
	if err := s.define(ctx); err != nil {
		for i := range answers {
			answers[i].Err = err
		}
	} else {
		asks := make([]waitdb.AcquireRequest, len(all))
		for i, a := range all {
			asks[i] = waitdb.AcquireRequest{Job: s.waitdbJob(a), Needs: a.rule.Needs}
		}
		began := time.Now()
		answers = s.permits.AcquireAll(ctx, asks...)
		for _, answer := range answers {
			s.noteLimiter(ctx, began, answer.Err)
		}
	}
	for i, a := range all {
		d, err := a.position.adjust(answers[i].Decision), answers[i].Err
		s.stats.ObserveLimiterCall(time.Since(a.sentAt), err != nil)
		if err == nil {
			s.stats.CountDecision(a.rule.Needs, d)
		}
		a.decision, a.err = s.outcomeError(a, d, err)
		denied = denied || d.Outcome == throttle.Denied
	}
	return denied
}

// waitdbJob describes the job to the limiter. Its deadline is a second earlier there, so that a job
// that waits until then is archived with the reason why it waited.
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

// outcomeError turns the limiter's answer into what becomes of a job: nil if the job may run, or
// else an error that makes asynq put it back, archive it or delete it. If the limiter cannot be
// asked, the job is put back for a second: to run it would break the limit, and to fail it would
// spend its attempts on an outage.
func (s *scope) outcomeError(a *attempt, d waitdb.Decision, err error) (waitdb.Decision, error) {
	switch {
	case errors.Is(err, throttle.ErrUnavailable):
		// The job may have a place in its lane, and be granted from there.
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

// denied returns the error of a job that waits for permits. The job stays in asynq's retry set
// until the dispatcher moves it back. The set's own delay is a safety net and longer than the wait,
// because a job that came early would be denied again. Without promotion it is the wait itself.
func (s *Server) denied(d waitdb.Decision, err error) *putBackError {
	delay := d.PutBack
	if !s.canPromote.Load() {
		delay = d.RetryAfter
	}
	return &putBackError{error: err, at: time.Now().Add(delay), denied: true}
}

// impossible ends a job that cannot have its permits, or lets it run without them. Then the
// decision is zero, because nothing was taken that could be settled or freed.
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
