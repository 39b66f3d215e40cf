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
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

const (
	// Jobs whose rule has changed are sent to ask a page at a time, with a pause after
	// each: workers have others to run.
	promotePause = 100 * time.Millisecond
	// Where any were sent, all are compared again after a minute, some times: a worker
	// that has not yet heard of the new rules may have got them.
	promoteRounds = 3
	// waitingRuleTime is how long a rule may take that is asked about a job that waits.
	waitingRuleTime = 5 * time.Second
)

// RulesChanged has jobs that wait ask again for which the rules' For says other needs
// than those they wait for, the one that waits longest first: within seconds where they
// are few, at 1,000 a second. They have waited since they were denied first, and stand by
// that among those who wait for the same. It returns at once, and may be called at any
// time, from any goroutine. It is about the jobs of the server's own queues; each server
// whose rules change is to be told. One that starts asks its rules by itself.
func (s *Server) RulesChanged() {
	select {
	case s.changed <- struct{}{}:
	default: // it is to be done anyway
	}
}

// askAgain does what RulesChanged says, until the context ends.
func (s *Server) watchRules(ctx context.Context) {
	for rounds := 0; ; {
		var later <-chan time.Time // nil, and so never, where there is nothing more to do
		if rounds > 0 {
			later = time.After(s.passes)
		}
		select {
		case <-ctx.Done():
			return
		case <-s.changed:
			rounds = promoteRounds
		case <-later:
		}
		rounds--
		for sent, err := -1, error(nil); sent < 0 && ctx.Err() == nil; {
			if sent, err = s.promoteChanged(ctx); err != nil { // whoever asks tells of an outage
				sleep(ctx, dispatcher.ErrorPause)
			} else if sent == 0 {
				rounds = 0
			} else {
				s.log.Info("waiting jobs ask again: their rules have changed", "jobs", sent)
			}
		}
	}
}

// sendChanged sends all jobs to ask that wait for other needs than their rules say now.
// It returns -1 with an error.
func (s *Server) promoteChanged(ctx context.Context) (sent int, err error) {
	if !s.promotes.Load() {
		return 0, nil // asynq's polls bring them
	}
	var changed []waitdb.Record
	for cursor := uint64(0); ; {
		var records []waitdb.Record
		if records, cursor, err = s.limiter.Records(ctx, cursor, dispatcher.PageSize); err != nil {
			return -1, err
		}
		if changed, err = s.appendChanged(ctx, changed, records); err != nil {
			return -1, err
		}
		if cursor == 0 {
			break
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
		fates, err := dispatcher.Promote(ctx, s.db, jobs)
		if err != nil {
			return -1, err
		}
		for _, fate := range fates {
			if fate == fairqueue.StateMoved {
				sent++
			}
		}
		sleep(ctx, promotePause)
	}
	return sent, nil
}

// appendChanged appends those of some waiting jobs whose rule says other needs now. A
// job whose rule is not found waits on: to ask for it would be a failed attempt. But a rule
// that panics is to fail its job, as it does wherever it is asked.
func (s *Server) appendChanged(ctx context.Context, changed, records []waitdb.Record) ([]waitdb.Record, error) {
	byQueue := map[string][]waitdb.Record{}
	for _, r := range records {
		if slices.Contains(s.queues, r.Queue) {
			byQueue[r.Queue] = append(byQueue[r.Queue], r)
		}
	}
	for queue, records := range byQueue {
		ids := make([]string, len(records))
		for i, r := range records {
			ids[i] = r.ID
		}
		messages, err := s.db.Messages(ctx, queue, ids...)
		if err != nil {
			return nil, err
		}
		if changed, err = s.appendOtherRules(ctx, changed, records, messages); err != nil {
			return nil, err
		}
	}
	return changed, nil
}

// appendOtherRules asks the rules about waiting jobs, all at once, since any of them may take
// long or never return. Jobs whose rules are not there in time wait on.
func (s *Server) appendOtherRules(ctx context.Context, changed, records []waitdb.Record, messages []string) ([]waitdb.Record, error) {
	is := make(chan int, len(records)) // those whose rule says something else; -1 for each of the others
	end := time.Now().Add(waitingRuleTime)
	for i, r := range records {
		go func() {
			answer := -1
			defer func() { is <- answer }()
			task, err := asynqdb.ParseTask([]byte(messages[i]))
			if messages[i] == "" || err != nil {
				return // it is gone, or asynq's to judge
			}
			rule, err := s.ruleOf(job{Queue: r.Queue, ID: r.ID}, task, end)
			if _, panicked := errors.AsType[*panicError](err); panicked || err == nil && !waitsFor(r, rule) {
				answer = i
			}
		}()
	}
	late := time.NewTimer(time.Until(end))
	defer late.Stop()
	for range records {
		select {
		case i := <-is:
			if i >= 0 {
				changed = append(changed, records[i])
			}
		case <-late.C:
			return changed, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return changed, nil
}

// waitsFor reports whether a job that waits would wait as it does if it asked by a rule.
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

// sleep waits for some time, or until the context ends.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

type jobKey struct{}

// GetJob returns the queue and the ID of the job for which a rule is asked, or a handler
// runs, from its context. asynq's GetQueueName and GetTaskID know them too, but not of a
// job that waits: see [Server.RulesChanged].
func GetJob(ctx context.Context) (queue, id string, ok bool) {
	if j, ok := ctx.Value(jobKey{}).(job); ok {
		return j.Queue, j.ID, true
	}
	queue, ok = asynq.GetQueueName(ctx)
	id, _ = asynq.GetTaskID(ctx)
	return queue, id, ok
}
