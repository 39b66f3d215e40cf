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

	"github.com/headgate/headgate/internal/usercode"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

const (
	// ruleTimeout is how long a batch of jobs waits for the results of RuleFor. A job whose RuleFor
	// takes longer requests its permits in a later call.
	ruleTimeout = 20 * time.Millisecond
	// asynqDefaultTimeout is asynq's timeout of a job that has neither a timeout nor a deadline.
	asynqDefaultTimeout = 30 * time.Minute
	// maxBatch is the maximum number of jobs in one dequeue and in one request for permits, because
	// Redis serves no other client while a script runs.
	maxBatch = 64
	// For deniedWindow after a denial, asynq gets a fetched job only after the limiter's result, or
	// after admitTime.
	deniedWindow = time.Second
)

// permits is the part of *waitdb.DB that a server calls for each job. Tests replace it with a
// wrapper.
type permits interface {
	AcquireAll(ctx context.Context, requests ...waitdb.AcquireRequest) []waitdb.AcquireResult
	Extend(ctx context.Context, holder string, needs ...throttle.Need) (time.Duration, error)
	Free(ctx context.Context, holder string, needs ...throttle.Need) error
	RateLimited(ctx context.Context, job waitdb.Job, limited waitdb.RateLimit, needs ...throttle.Need) (waitdb.Decision, error)
}

// requestPermits requests permits for the jobs of one batch, in their order, and does not wait for
// the results. A slow RuleFor delays only its own job. RuleFor may run until the job's Timeout or
// Deadline, or for asynqDefaultTimeout if the job has neither.
func (s *scope) requestPermits(all ...*attempt) {
	rules, deadlines, now := make([]<-chan usercode.Result[Rule], len(all)), make([]time.Time, len(all)), time.Now()
	for i, a := range all {
		if deadlines[i] = a.deadlineFrom(now); !deadlines[i].After(now) {
			deadlines[i] = now.Add(cmp.Or(a.timeout, asynqDefaultTimeout))
		}
		a.done, a.decision = make(chan struct{}), waitdb.Decision{}
		rules[i] = s.askRule(a.JobID, a.task, deadlines[i])
	}
	wait, cancel := context.WithTimeout(context.Background(), ruleTimeout)
	defer cancel()
	ready := make([]*attempt, 0, len(all))
	for i, a := range all {
		if r, ok := usercode.Receive(wait, rules[i]); ok {
			a.rule, a.err = r.Value, r.Err
			ready = append(ready, a)
			continue
		}
		go func() {
			ctx, cancel := context.WithDeadline(context.Background(), deadlines[i])
			defer cancel()
			r, ok := usercode.Receive(ctx, rules[i])
			if a.rule, a.err = r.Value, r.Err; !ok {
				a.err = fmt.Errorf("RuleFor has not returned: %w", context.DeadlineExceeded)
			}
			s.queueRequests(a)
		}()
	}
	s.queueRequests(ready...)
}

// askRule calls the program's RuleFor. The context of RuleFor is derived from the program's
// BaseContext, holds the job and ends at the deadline.
func (s *Server) askRule(j job, task *asynq.Task, deadline time.Time) <-chan usercode.Result[Rule] {
	return usercode.Go(s.log, "RuleFor", func() (Rule, error) {
		if err := s.checkHandler(task); err != nil {
			return Rule{}, seal(err)
		}
		base, err := s.baseContext()
		if err != nil {
			return Rule{}, err
		}
		base = context.WithValue(context.WithValue(base, jobKey{}, j), queueKey{}, s.shards.QueueOf(j.Queue))
		ctx, cancel := context.WithDeadline(base, deadline)
		defer cancel()
		rule, err := s.rules.RuleFor(ctx, task)
		return rule, seal(err)
	})
}

// requestQueue holds the requests of a scope that have not been sent, in order. One call to the
// limiter runs at a time. Requests that are added during a call are sent in the next one.
type requestQueue struct {
	mu        sync.Mutex
	waiting   []*attempt
	isSending bool
}

// queueRequests queues the requests of jobs whose RuleFor has returned. If a job does not run or
// has no needs, queueRequests closes its channel done at once.
func (s *scope) queueRequests(ready ...*attempt) {
	q := &s.requests
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, a := range ready {
		a.requestQueuedAt = time.Now()
		if a.rule.FairnessKey != "" {
			s.prefetcher.noteKey(a.Queue)
		}
		if errors.Is(a.err, throttle.ErrUnavailable) {
			_, a.err = s.outcomeError(a, a.decision, a.err)
		} else if isUnable(a.err) && a.Back {
			go func() {
				a.err = a.putBackUnable(a.err, s.mayHaveLane(a.JobID))
				close(a.done)
			}()
			continue
		} else if isUnable(a.err) {
			a.err = a.putBackUnable(a.err, false)
		} else if a.err == nil {
			if err := s.shards.Check(s.shards.QueueOf(a.Queue), s.shard, a.rule.Needs); err != nil {
				a.err = s.unusableLimit(a, err)
			} else if a.err = a.expiredError(); a.err != nil && len(a.rule.Needs) > 0 {
				go func() { _, _ = s.limiter.Forget(context.Background(), a.JobID) }() // if Forget fails, the dispatcher forgets the job
			}
		}
		if a.err == nil && len(a.rule.Needs) > 0 {
			q.waiting = append(q.waiting, a)
		} else {
			close(a.done)
		}
	}
	if len(q.waiting) == 0 || q.isSending {
		return
	}
	q.isSending = true
	go func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		for len(q.waiting) > 0 {
			n := min(len(q.waiting), maxBatch)
			batch := q.waiting[:n:n]
			q.waiting = q.waiting[n:]
			q.mu.Unlock()
			s.acquire(batch)
			q.mu.Lock()
		}
		q.waiting, q.isSending = nil, false
	}()
}

// acquire requests the permits of the jobs from the limiter, in their order, and sets their
// results. If the rules' limits are not defined in Redis yet, acquire defines them first.
func (s *scope) acquire(all []*attempt) {
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
		call := s.limiterHealth.Begin()
		results = s.permits.AcquireAll(ctx, requests...)
		for _, r := range results {
			noteLimiter(ctx, call, r.Err)
		}
	}
	for i, a := range all {
		d, err := results[i].Decision, results[i].Err
		// A retry's wait begins at the end of its backoff. If a job was allowed before and did not
		// start, its earlier wait and denials count, too.
		switch p := a.position; {
		case !d.OK() || p.queuedAt.IsZero():
		case !p.notStarted:
			d.Waited = min(d.Waited, max(0, d.At.Sub(p.retryAt)))
		case d.Denials+p.denials > 0:
			d.Denials, d.Waited = d.Denials+p.denials, max(0, d.At.Sub(p.retryAt))
		}
		s.stats.LimiterCalls.Observe(time.Since(a.requestQueuedAt))
		if err == nil {
			s.stats.CountDecision(a.rule.Needs, d)
		} else {
			s.stats.LimiterFailures.Add(1)
		}
		if d.Outcome == throttle.Denied {
			s.deniedAt.Store(time.Now().UnixNano())
		}
		a.decision, a.err = s.outcomeError(a, d, err)
		a.startAt = time.Now().Add(a.decision.BeginIn)
		close(a.done)
	}
}

// waitdbJob returns the attempt's job as the limiter needs it. The result's Deadline is one second
// before the job's own, so that the limiter ends the wait and names the limit for which the job
// waited.
func (s *scope) waitdbJob(a *attempt) waitdb.Job {
	j := waitdb.Job{
		JobID: a.JobID, Priority: waitdbPriority[a.rule.Priority], MaxWait: a.rule.MaxWait, Grant: s.grant,
		MaxAdvance: 2 * waitdb.Advance, Fair: a.rule.FairnessKey, Weight: a.rule.FairnessWeight, New: a.isNew,
		WaitsForLimits: cmp.Or(a.rule.OnNoLimit, ActionWait) == ActionWait,
	}
	// Producers can write any text into this header, so a text that is no level is ignored.
	if p, ok := waitdbPriority[PriorityLevel(a.task.Headers()[headerPriority])]; ok {
		j.Priority = p
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

// outcomeError returns a nil error if the job is to run. Any other error makes asynq put the job
// back, archive it or delete it. The Decision is zero if the job runs without permits, and d in all
// other cases. If the limiter is unavailable, the job is put back for a second.
func (s *scope) outcomeError(a *attempt, d waitdb.Decision, err error) (waitdb.Decision, error) {
	switch {
	case errors.Is(err, throttle.ErrUnavailable):
		// The limiter may have added the job to a lane. If denied is set, the dispatcher can
		// promote the job.
		return d, &putBackError{error: err, at: time.Now().Add(time.Second), denied: true}
	case err != nil:
		return d, &attemptError{error: err, final: true}
	case d.Outcome == throttle.Allowed:
		return d, nil
	case d.Outcome == throttle.Denied:
		if d.NoLimit {
			s.warnMissing(d)
		}
		s.log.LogAttrs(context.Background(), slog.LevelDebug, "job denied", slog.String("type", a.task.Type()), slog.String("id", a.ID),
			slog.String("queue", a.Queue), slog.String("limit", d.Limit), slog.String("key", d.Key), slog.Duration("retry_after", d.RetryAfter))
		return d, s.denied(d, errors.New(d.String()))
	}
	return a.resolveImpossible(d)
}

// denied returns the error of a job that waits for permits. asynq keeps the job in its retry set
// until the dispatcher promotes the job, or until the retry time. If promotion is enabled, the
// retry time is later than the estimated wait, because an early retry would be denied again.
func (s *Server) denied(d waitdb.Decision, err error) *putBackError {
	delay := d.PutBack
	if !s.canPromote.Load() {
		delay = d.RetryAfter
	}
	return &putBackError{error: err, at: time.Now().Add(delay), denied: true}
}

// resolveImpossible returns the error of a job that cannot get its permits, or nil if the rule lets
// the job run without them. In that case the decision is zero, because there are no permits to
// settle or free.
func (a *attempt) resolveImpossible(d waitdb.Decision) (waitdb.Decision, error) {
	action := ActionArchive
	switch d.Outcome {
	case throttle.Expired:
		action = a.rule.OnMaxWait
	case throttle.NoLimit:
		action = cmp.Or(a.rule.OnNoLimit, ActionWait)
	}
	switch action {
	case ActionWait: // acquire lets the job wait in its lane
		return d, &putBackError{error: errors.New(d.String()), at: time.Now().Add(time.Second), denied: true}
	case ActionRun:
		return waitdb.Decision{}, nil
	case ActionDrop:
		return d, &ImpossibleError{d.Decision, asynq.RevokeTask}
	}
	return d, &ImpossibleError{d.Decision, asynq.SkipRetry}
}
