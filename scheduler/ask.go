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
	// ruleTime is how long jobs wait for the rules of those that were taken with them.
	// The others ask later.
	ruleTime = 2 * time.Millisecond
	// asynqTimeout is how long asynq lets a job run that says nothing about its time.
	asynqTimeout = 30 * time.Minute
)

// ask has jobs that were taken together ask for their permits, in their order, and
// returns before they have their answers. A slow rule delays only its own job. If the
// rule has not returned when the job's Timeout or Deadline is over, the job fails.
func (s *Server) ask(all []*asking) {
	ruled := make(chan *asking, len(all))
	for i, q := range all {
		q.place, q.answered = i, make(chan struct{})
		q.ruleBy = q.term.ruleEnd(time.Now())
		go s.findRule(q, ruled)
	}
	ready := gather(ruled, len(all))
	s.inOrder.add(ready)
	if left := len(all) - len(ready); left > 0 {
		timers := map[*asking]*time.Timer{}
		for _, q := range all {
			if !slices.Contains(ready, q) {
				timers[q] = time.AfterFunc(time.Until(q.ruleBy), func() { q.ruleFound(ruled, Rule{}, errRuleTime, nil) })
			}
		}
		go func() {
			for ; left > 0; left-- {
				q := <-ruled
				timers[q].Stop()
				s.inOrder.add([]*asking{q})
			}
		}()
	}
}

// ruleEnd is when a rule has taken all of the job's time that is asked now. A deadline that
// is over already says nothing about the rule.
func (t term) ruleEnd(now time.Time) time.Time {
	if end := t.end(now); end.After(now) {
		return end
	}
	return now.Add(cmp.Or(t.timeout, asynqTimeout))
}

// gather waits for one asking, and a little for the others of n.
func gather(ruled <-chan *asking, n int) []*asking {
	var ready []*asking
	for late := time.After(ruleTime); len(ready) < n; {
		select {
		case q := <-ruled:
			ready = append(ready, q)
			continue
		case <-late:
		}
		break
	}
	slices.SortFunc(ready, func(a, b *asking) int { return cmp.Compare(a.place, b.place) })
	return ready
}

var (
	// errNoRule fails a job whose rule ended its goroutine in place of returning.
	errNoRule = errors.New("rules: For did not return")
	// errRuleTime fails a job whose rule took all of the job's time.
	errRuleTime = fmt.Errorf("rules: For has not returned: %w", context.DeadlineExceeded)
)

// findRule finds out what a job needs, and whether it is not too late. What a rule panics
// with its handler will, so that asynq makes its own error of it.
func (s *Server) findRule(q *asking, ruled chan<- *asking) {
	rule, err, panicked := Rule{}, errNoRule, any(nil)
	defer func() { q.ruleFound(ruled, rule, err, panicked) }()
	rule, err = s.ruleOf(q.job, q.task, q.ruleBy)
	if p, ok := errors.AsType[*panicError](err); ok {
		panicked = p.value
	}
	if errors.Is(err, throttle.ErrUnavailable) {
		_, err = s.judge(context.Background(), q.attempt, throttle.Decision{}, err)
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

// ruleFound says once what a job needs, or why it cannot be known.
func (q *asking) ruleFound(ruled chan<- *asking, rule Rule, err error, panicked any) {
	if q.hasRule.CompareAndSwap(false, true) {
		q.rule, q.err, q.panicked = rule, err, panicked
		ruled <- q
	}
}

// ruleOf asks the rules about a job. The context is the program's, tells which job it is, and
// ends when the rule's time does. A panic of the rule's is a panicError.
func (s *Server) ruleOf(j job, task *asynq.Task, end time.Time) (rule Rule, err error) {
	base, err := s.base()
	if err != nil {
		return Rule{}, err
	}
	ctx, cancel := context.WithDeadline(context.WithValue(base, jobKey{}, j), end)
	defer cancel()
	defer func() {
		if value := recover(); value != nil {
			rule, err = Rule{}, s.userCode.panicked("the rules' For", value)
		}
	}()
	return s.rules.For(ctx, task)
}

// acquire asks the limiter for the permits of jobs, in their order, and reports whether one
// has to wait. The limiter must have been told the rules' limits before: no job is refused
// for one that it does not know yet.
func (s *Server) acquire(all []*asking) (denied bool) {
	asks := make([]waitdb.Ask, len(all))
	for i, q := range all {
		asks[i] = waitdb.Ask{Job: s.asks(q.attempt), Needs: q.rule.Needs}
	}
	ctx, err := s.base()
	if err != nil {
		for _, q := range all {
			q.err = err
		}
		return false
	}
	answers := s.answers(ctx, asks)
	for i, q := range all {
		d, err := answers[i].Decision, answers[i].Err
		d = q.stood.told(d)
		s.history.Asked(time.Since(q.began), err != nil)
		if err == nil {
			s.history.Decided(q.Queue, q.ID, q.rule.Needs, d)
		}
		q.decision, q.err = s.judge(ctx, q.attempt, d, err)
		denied = denied || d.Outcome == throttle.Denied
	}
	return denied
}

// answers are the limiter's. A limiter that cannot be told the limits is not asked.
func (s *Server) answers(ctx context.Context, asks []waitdb.Ask) (answers []waitdb.Answer) {
	if err := s.define(ctx); err != nil {
		return slices.Repeat([]waitdb.Answer{{Err: err}}, len(asks))
	}
	began := time.Now()
	answers = s.permits.AcquireAll(ctx, asks...)
	for _, a := range answers {
		s.noteLimiter(ctx, began, a.Err)
	}
	return answers
}

// asks is the job as the limiter knows it. Its deadline is said to be a second sooner, so
// that one that waits until then is archived with the reason why it waited.
func (s *Server) asks(a attempt) waitdb.Job {
	j := waitdb.Job{
		JobID: a.job, Priority: waitdb.Priority(priorityOf(a.task, a.rule)), MaxWait: a.rule.MaxWait, Grant: s.grant,
		Ahead: 2 * waitdb.Ahead, Fair: a.rule.Fair, Weight: a.rule.Weight, New: a.isNew,
	}
	if a.rule.RetryAt == AtTicket || a.stood.unbegun {
		j.Since = a.stood.since
	}
	if a.stood.unbegun {
		j.Waits = a.stood.again
	}
	if !a.deadline.IsZero() {
		j.Deadline = a.deadline.Add(-time.Second)
	}
	return j
}

// judge is what becomes of a job by the limiter's answer: the error is nil when it may
// run, and otherwise has asynq put it back, archive or delete it. Where the limiter cannot
// be asked the job is put back for a second: to run it would break the limit, and to fail
// it would spend attempts on an outage that is not the job's.
func (s *Server) judge(ctx context.Context, a attempt, d throttle.Decision, err error) (throttle.Decision, error) {
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
	case throttle.TooLate:
		return refuse(a.rule.OnMaxWait, d)
	case throttle.NoLimit:
		return refuse(a.rule.OnNoLimit, d)
	}
	return refuse(Archive, d)
}

// refuse is the end of a job that cannot have its permits, or that it runs without:
// then under the zero Decision, for it took nothing that could be settled or freed.
func refuse(action Action, d throttle.Decision) (throttle.Decision, error) {
	switch action {
	case Run:
		return throttle.Decision{}, nil
	case Drop:
		return d, &RefusedError{d, asynq.RevokeTask}
	}
	return d, &RefusedError{d, asynq.SkipRetry}
}

// delay is how long a denied job stays in asynq's retry set if nobody calls it
// back. Where jobs are promoted that is a safety net, and longer than the wait: one
// that came early would be denied again. Where they are not, only its end brings
// the job back, so it is the wait itself.
func (s *Server) delay(d throttle.Decision) time.Duration {
	if !s.promotes.Load() {
		return d.RetryAfter
	}
	return d.PutBack
}
