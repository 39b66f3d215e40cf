package scheduler

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/dispatcher"
	"github.com/headgate/headgate/internal/fairqueue"
	"github.com/headgate/headgate/internal/stats"
	"github.com/headgate/headgate/internal/usercode"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

const (
	// promotePause is the pause after each page of promoted jobs, so that workers run other jobs
	// too.
	promotePause = 100 * time.Millisecond
	// maxComparisons is the maximum number of comparisons after a change of rules, a minute apart.
	// One is not enough, because a worker that still has the old rules may get a promoted job.
	maxComparisons = 3
	// waitingRuleTime is the longest time for which RuleFor of a waiting job may run.
	waitingRuleTime = 5 * time.Second
)

// RulesChanged calls RuleFor for all waiting jobs of the server's queues. Jobs whose needs or
// fairness key have changed request permits again, the longest waiting first, at about 1,000 a
// second, and keep their waiting time. So do jobs that need a limit which does not exist, if their
// rule no longer lets them wait for it. RulesChanged returns at once, and may be called at any time,
// from any goroutine. It must be called on each server whose rules change. Start compares the rules
// by itself.
func (s *Server) RulesChanged() {
	for _, c := range s.scopes {
		offer(c.rulesChanged)
	}
}

// watchRules makes the comparisons that RulesChanged requests, until the context ends.
func (s *scope) watchRules(ctx context.Context) {
	rounds, pause := 0, s.reconcileInterval
	for {
		var later <-chan time.Time // nil if no comparison is left
		if rounds > 0 {
			later = time.After(pause)
		}
		select {
		case <-ctx.Done():
			return
		case <-s.rulesChanged:
			rounds = maxComparisons
		case <-later:
		}
		switch sent, err := s.promoteChanged(ctx); {
		case err != nil: // requests for permits report an outage
			pause = dispatcher.ErrorPause
		case sent == 0:
			rounds = 0
		default:
			rounds, pause = rounds-1, s.reconcileInterval
			s.log.Info("waiting jobs ask again: their rules have changed", "jobs", sent)
		}
	}
}

// promoteChanged promotes all waiting jobs whose rule has other needs now, or no longer waits for
// limits that do not exist, so that they request permits again. The result sent is the number of promoted jobs.
func (s *scope) promoteChanged(ctx context.Context) (sent int, err error) {
	if !s.canPromote.Load() {
		return 0, nil // asynq's polls bring the jobs back, and each then gets its new rule
	}
	defined, err := s.limiter.Limits(ctx)
	if err != nil {
		return 0, err
	}
	var changed []waitdb.Record
	for cursor, more := uint64(0), true; more; more = cursor != 0 {
		var records []waitdb.Record
		if records, cursor, err = s.limiter.Records(ctx, cursor, dispatcher.PageSize); err != nil {
			return 0, err
		}
		if changed, err = s.appendChanged(ctx, changed, records, defined); err != nil {
			return 0, err
		}
	}
	slices.SortFunc(changed, func(a, b waitdb.Record) int {
		return cmp.Or(cmp.Compare(a.Since, b.Since), cmp.Compare(a.Ticket, b.Ticket))
	})
	for changed := range slices.Chunk(changed, dispatcher.PageSize) {
		jobs := make([]job, len(changed))
		for i, r := range changed {
			jobs[i] = job{Queue: r.Queue, ID: r.ID}
		}
		states, err := s.db.Promote(ctx, jobs...)
		if err != nil {
			return 0, err
		}
		for _, state := range states {
			if state == string(fairqueue.StateMoved) {
				sent++
			}
		}
		sleep(ctx, promotePause)
	}
	return sent, nil
}

// appendChanged appends the records whose job has a rule with other needs now, or with needs of limits
// that are not defined and an OnNoLimit that does not wait. It calls RuleFor for
// all jobs of a queue at once, because any call may take long. A job whose rule returns an error
// continues to wait, because a new attempt would fail. A job whose rule panics is appended, so that
// its next attempt fails, as after any panic of RuleFor.
func (s *scope) appendChanged(ctx context.Context, changed, records []waitdb.Record, defined []throttle.Limit) ([]waitdb.Record, error) {
	for _, queue := range s.queues {
		var waiting []waitdb.Record
		var ids []string
		for _, r := range records {
			if r.Queue == queue {
				waiting, ids = append(waiting, r), append(ids, r.ID)
			}
		}
		messages, err := s.db.Fields(ctx, queue, asynqdb.FieldMessage, ids...)
		if err != nil {
			return nil, err
		}
		end, rules := time.Now().Add(waitingRuleTime), make([]<-chan usercode.Result[Rule], len(ids))
		for i, id := range ids {
			if m, err := asynqdb.ParseMessage([]byte(messages[i])); err == nil && messages[i] != "" { // else no such job
				rules[i] = s.askRule(job{Queue: queue, ID: id}, m.Task, end)
			}
		}
		wait, cancel := context.WithDeadline(ctx, end)
		for i, r := range waiting {
			if rules[i] == nil {
				continue
			}
			rule, ok := usercode.Receive(wait, rules[i])
			_, panicked := errors.AsType[*usercode.PanicError](rule.Err)
			asksAgain := rule.Err == nil && (!waitsFor(r, rule.Value) || endsWait(rule.Value, defined))
			if ok && (panicked || asksAgain) {
				changed = append(changed, r)
			}
		}
		cancel()
	}
	return changed, ctx.Err()
}

// waitsFor reports whether the record of a waiting job matches the needs and the fairness key of a
// rule.
func waitsFor(r waitdb.Record, rule Rule) bool {
	needs, err := throttle.Normalize(rule.Needs...)
	if err != nil {
		return false
	}
	var meters, costs []string
	for _, n := range needs {
		meters, costs = append(meters, n.Limit+"|"+n.Key), append(costs, strconv.Itoa(n.Cost))
	}
	return r.Lane == fairqueue.Lane(r.Queue, meters, fairqueue.FairnessLine(rule.FairnessKey, rule.FairnessWeight)) && r.Costs == strings.Join(costs, ",")
}

// endsWait reports whether a rule needs a limit that is not defined, and does not wait for it.
func endsWait(rule Rule, defined []throttle.Limit) bool {
	return cmp.Or(rule.OnNoLimit, ActionWait) != ActionWait && slices.ContainsFunc(rule.Needs, func(n throttle.Need) bool {
		return !slices.ContainsFunc(defined, func(l throttle.Limit) bool { return l.Name == n.Limit })
	})
}

// requirementsOf returns what a pending job will request, by its rule. The result known is false if
// RuleFor fails, or does not return before the context ends. If the rule archives the job, known is
// true and wants is zero.
func (s *Server) requirementsOf(ctx context.Context, j job, task *asynq.Task) (wants stats.Requirements, known bool) {
	end, ok := ctx.Deadline()
	if !ok {
		return stats.Requirements{}, false
	}
	r, ok := usercode.Receive(ctx, s.askRule(j, task, end))
	if !ok || r.Err != nil {
		return stats.Requirements{}, errors.Is(r.Err, asynq.SkipRetry) // the job will be archived, and request nothing
	}
	return stats.Requirements{Needs: r.Value.Needs, FairnessKey: r.Value.FairnessKey, FairnessWeight: r.Value.FairnessWeight}, true
}

// sleep waits for some time, or until the context ends.
func sleep(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
