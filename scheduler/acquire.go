package scheduler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

const (
	// ruleTime is how long a batch waits for its slowest rule. Jobs whose rule takes longer request
	// permits on their own.
	ruleTime = 2 * time.Millisecond
	// asynqTimeout is how long asynq lets a job run that has neither a timeout nor a deadline.
	asynqTimeout = 30 * time.Minute
)

// request requests permits for the jobs of one batch, in their order, and returns before the
// results are there. A slow rule delays only its own job. If the rule has not returned when the
// job's Timeout or Deadline is over, the job fails.
func (s *Server) request(all []*acquireRequest) {
	ruled := make(chan *acquireRequest, len(all))
	for i, q := range all {
		q.index, q.done = i, make(chan struct{})
		q.ruleDeadline = q.jobTimeout.ruleEnd(time.Now())
		go s.findRule(q, ruled)
	}
	ready := collectReady(ruled, len(all))
	s.requests.add(ready)
	if left := len(all) - len(ready); left > 0 {
		timers := map[*acquireRequest]*time.Timer{}
		for _, q := range all {
			if !slices.Contains(ready, q) {
				timers[q] = time.AfterFunc(time.Until(q.ruleDeadline), func() { q.ruleFound(ruled, Rule{}, errRuleTime, nil) })
			}
		}
		go func() {
			for ; left > 0; left-- {
				q := <-ruled
				timers[q].Stop()
				s.requests.add([]*acquireRequest{q})
			}
		}()
	}
}

// ruleEnd is when a rule that is asked now has used up all of the job's time. A deadline that is
// over already does not count, because it says nothing about the rule.
func (t jobTimeout) ruleEnd(now time.Time) time.Time {
	if end := t.end(now); end.After(now) {
		return end
	}
	return now.Add(cmp.Or(t.timeout, asynqTimeout))
}

// collectReady waits for one request whose rule is known, and a little for the others of n.
func collectReady(ruled <-chan *acquireRequest, n int) []*acquireRequest {
	var ready []*acquireRequest
	for late := time.After(ruleTime); len(ready) < n; {
		select {
		case q := <-ruled:
			ready = append(ready, q)
			continue
		case <-late:
		}
		break
	}
	slices.SortFunc(ready, func(a, b *acquireRequest) int { return cmp.Compare(a.index, b.index) })
	return ready
}

var (
	// errNoRule fails a job whose rule ended its goroutine in place of returning.
	errNoRule = errors.New("rules: RuleFor did not return")
	// errRuleTime fails a job whose rule took all of the job's time.
	errRuleTime = fmt.Errorf("rules: RuleFor has not returned: %w", context.DeadlineExceeded)
)

// findRule finds out what a job needs, and whether its deadline is over. If the rule panics, the
// job's handler panics with the same value, so that asynq makes its own error of it.
func (s *Server) findRule(q *acquireRequest, ruled chan<- *acquireRequest) {
	rule, err, panicked := Rule{}, errNoRule, any(nil)
	defer func() { q.ruleFound(ruled, rule, err, panicked) }()
	rule, err = s.ruleOf(q.job, q.task, q.ruleDeadline)
	if p, ok := errors.AsType[*panicError](err); ok {
		panicked = p.value
	}
	if errors.Is(err, throttle.ErrUnavailable) {
		_, err = s.outcomeError(context.Background(), q.attempt, throttle.Decision{}, err)
	}
	if err != nil {
		return
	}
	a := q.attempt
	a.rule = rule
	if err = a.late(); err != nil && len(rule.Needs) > 0 {
		_, _ = s.limiter.Forget(context.Background(), q.job) // what fails here, the upkeep does
	}
}

// ruleFound records the rule, or why it cannot be known. Only the first call counts.
func (q *acquireRequest) ruleFound(ruled chan<- *acquireRequest, rule Rule, err error, panicked any) {
	if q.hasRule.CompareAndSwap(false, true) {
		q.rule, q.err, q.panicked = rule, err, panicked
		ruled <- q
	}
}

// ruleOf asks the program's rules about a job. The context is the program's, says which job it is,
// and ends when the rule's time is over. A panic is returned as a panicError.
func (s *Server) ruleOf(j job, task *asynq.Task, end time.Time) (rule Rule, err error) {
	base, err := s.base()
	if err != nil {
		return Rule{}, err
	}
	ctx, cancel := context.WithDeadline(context.WithValue(base, jobKey{}, j), end)
	defer cancel()
	defer func() {
		if value := recover(); value != nil {
			rule, err = Rule{}, s.userCode.panicked("the rules' RuleFor", value)
		}
	}()
	return s.rules.RuleFor(ctx, task)
}

// acquire asks the limiter for the permits of jobs, in their order, and reports whether it denied
// any of them. The limiter gets the limits of the rules first, so that no job is refused because
// its limit is not defined yet.
func (s *Server) acquire(all []*acquireRequest) (denied bool) {
	asks := make([]waitdb.AcquireRequest, len(all))
	for i, q := range all {
		asks[i] = waitdb.AcquireRequest{Job: s.waitdbJob(q.attempt), Needs: q.rule.Needs}
	}
	ctx, err := s.base()
	if err != nil {
		for _, q := range all {
			q.err = err
		}
		return false
	}
	answers := s.acquirePermits(ctx, asks)
	for i, q := range all {
		d, err := answers[i].Decision, answers[i].Err
		d = q.position.adjust(d)
		s.history.ObserveLimiterCall(time.Since(q.sentAt), err != nil)
		if err == nil {
			s.history.CountDecision(q.Queue, q.ID, q.rule.Needs, d)
		}
		q.decision, q.err = s.outcomeError(ctx, q.attempt, d, err)
		denied = denied || d.Outcome == throttle.Denied
	}
	return denied
}

// acquirePermits defines the limits and asks the limiter. If the limits cannot be defined, the
// limiter is not asked.
func (s *Server) acquirePermits(ctx context.Context, asks []waitdb.AcquireRequest) (answers []waitdb.AcquireResult) {
	if err := s.define(ctx); err != nil {
		return slices.Repeat([]waitdb.AcquireResult{{Err: err}}, len(asks))
	}
	began := time.Now()
	answers = s.permits.AcquireAll(ctx, asks...)
	for _, a := range answers {
		s.noteLimiter(ctx, began, a.Err)
	}
	return answers
}

// waitdbJob describes the job to the limiter. Its deadline is a second earlier there, so that a job
// that waits until then is archived with the reason why it waited.
func (s *Server) waitdbJob(a attempt) waitdb.Job {
	j := waitdb.Job{
		JobID: a.job, Priority: waitdb.Priority(priorityOf(a.task, a.rule)), MaxWait: a.rule.MaxWait, Grant: s.grant,
		MaxAdvance: 2 * waitdb.Advance, Fair: a.rule.FairnessKey, Weight: a.rule.FairnessWeight, New: a.isNew,
	}
	if a.rule.RetryPosition == PositionKeep || a.position.notStarted {
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
func (s *Server) outcomeError(ctx context.Context, a attempt, d throttle.Decision, err error) (throttle.Decision, error) {
	if errors.Is(err, throttle.ErrUnavailable) {
		// It may have a place in its lane, and be called from there.
		return d, &putBackError{error: err, at: time.Now().Add(time.Second), denied: true}
	}
	if err != nil {
		return d, finalError{err}
	}
	switch d.Outcome {
	case throttle.Allowed:
		return d, nil
	case throttle.Denied:
		s.log.LogAttrs(ctx, slog.LevelDebug, "job denied", slog.String("type", a.task.Type()), slog.String("id", a.ID),
			slog.String("queue", a.Queue), slog.String("limit", d.Limit), slog.String("key", d.Key), slog.Duration("retry_after", d.RetryAfter))
		return d, &putBackError{error: errors.New(d.String()), at: time.Now().Add(s.delay(d)), denied: true}
	case throttle.Expired:
		return refuse(a.rule.OnMaxWait, d)
	case throttle.NoLimit:
		return refuse(a.rule.OnNoLimit, d)
	}
	return refuse(ActionArchive, d)
}

// refuse ends a job that cannot have its permits, or lets it run without them. Then the decision is
// zero, because nothing was taken that could be settled or freed.
func refuse(action Action, d throttle.Decision) (throttle.Decision, error) {
	switch action {
	case ActionRun:
		return throttle.Decision{}, nil
	case ActionDrop:
		return d, &ImpossibleError{d, asynq.RevokeTask}
	}
	return d, &ImpossibleError{d, asynq.SkipRetry}
}

// delay is how long a denied job stays in asynq's retry set if the dispatcher does not move it back
// before. If the dispatcher promotes jobs, the delay is a safety net and longer than the wait,
// because a job that came early would be denied again. Without promotion it is the wait itself.
func (s *Server) delay(d throttle.Decision) time.Duration {
	if !s.promotes.Load() {
		return d.RetryAfter
	}
	return d.PutBack
}
