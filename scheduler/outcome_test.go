package scheduler

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/throttle"
)

// TestJob_Outcome: what becomes of a job within five minutes, and why asynq says so. The first
// permit of its limit exists after a minute.
func TestJob_Outcome(t *testing.T) {
	t.Parallel()
	at := func(minutes int) time.Time { return time.Date(2000, 1, 1, 0, minutes, 0, 0, time.UTC) } // bubbles begin at 0
	opts := func(o ...asynq.Option) []asynq.Option { return o }
	fails := func(err error) func(*asynq.Task) (Rule, error) {
		return func(*asynq.Task) (Rule, error) { return Rule{}, err }
	}
	costs := func(n int) Rule { return Rule{Needs: []throttle.Need{{Limit: "api", Cost: n}}} }
	waits := func(r Rule) Rule { r.Needs = needs("api").Needs; return r }
	unknown := func(r Rule) Rule { r.Needs = needs("unknown").Needs; return r }
	// A limit of the rules would be defined again.
	deletes := func(st *stack) {
		st.server.scopes[0].limits.Store(newLimits(nil, true))
		st.must(st.limiter.Delete(st.t.Context(), "api"))
	}
	panics := func(context.Context, *asynq.Task) error { panic("a fault") }
	blocks := func(context.Context, *asynq.Task) error {
		if time.Now().Before(at(1)) {
			return RateLimited(at(1))
		}
		return RateLimited(time.Time{})
	}
	hour := constantDelay(time.Hour)
	asked := 0
	const archived, retry = asynq.TaskStateArchived, asynq.TaskStateRetry
	const tooLate, waited, shown = "too late: its deadline", "within the time that it may wait", "caf\uFFFD"
	for name, row := range map[string]struct {
		rule     Rule
		find     func(*asynq.Task) (Rule, error) // in place of rule
		opts     []asynq.Option
		handle   func(context.Context, *asynq.Task) error
		during   func(st *stack) // after half a minute
		state    asynq.TaskState
		text     string
		runs     int
		retried  int
		reported int // to the ErrorHandler; -1 means any number
	}{
		"allowed":                                {rule: needs("api"), runs: 1},
		"timeout is no deadline":                 {rule: needs("api"), opts: opts(asynq.Timeout(10 * time.Second)), runs: 1},
		"waits":                                  {rule: waits(Rule{MaxWait: time.Hour}), during: func(st *stack) { st.must(st.limiter.Pause(st.t.Context(), "api")) }, state: retry, text: "denied by api"},
		"cost above capacity":                    {rule: costs(3), state: archived, text: "cost 3 is above the capacity 1", reported: 1},
		"bad key":                                {rule: Rule{Needs: []throttle.Need{{Limit: "api", Key: "a\nb"}}}, state: archived, text: "no control characters", reported: 1},
		"no such limit":                          {rule: needs("unknown"), state: retry, text: "no such limit: unknown"},
		"no such limit, archive":                 {rule: unknown(Rule{OnNoLimit: ActionArchive}), state: archived, text: "no such limit: unknown", reported: 1},
		"no such limit, drop":                    {rule: unknown(Rule{OnNoLimit: ActionDrop}), reported: 1},
		"no such limit, run":                     {rule: unknown(Rule{OnNoLimit: ActionRun}), runs: 1},
		"limit deleted":                          {rule: needs("api"), during: deletes, state: retry, text: "no such limit: api"},
		"limit deleted, archive":                 {rule: waits(Rule{OnNoLimit: ActionArchive}), during: deletes, state: archived, text: "no such limit: api", reported: 1},
		"limit deleted, run":                     {rule: waits(Rule{OnNoLimit: ActionRun}), during: deletes, runs: 1},
		"waits too long":                         {rule: waits(Rule{MaxWait: 40 * time.Second}), state: archived, text: waited, reported: 1},
		"waits too long, drop":                   {rule: waits(Rule{MaxWait: 40 * time.Second, OnMaxWait: ActionDrop}), reported: 1},
		"waits too long, drop, rule's retention": {rule: waits(Rule{MaxWait: 40 * time.Second, OnMaxWait: ActionDrop, Retention: time.Hour}), reported: 1},
		"dropped, rule's retention":              {rule: Rule{Retention: time.Hour}, handle: returns(asynq.RevokeTask), runs: 1, reported: 1},
		"waits too long, run":                    {rule: waits(Rule{MaxWait: 40 * time.Second, OnMaxWait: ActionRun}), runs: 1},
		"deadline passes":                        {rule: needs("api"), opts: opts(asynq.Deadline(at(0).Add(40 * time.Second))), state: archived, text: waited, reported: 1},
		"too late":                               {rule: needs("api"), opts: opts(asynq.Deadline(at(1)), asynq.ProcessIn(2*time.Minute)), state: archived, text: tooLate, reported: 1},
		"too late, without limits":               {opts: opts(asynq.Deadline(at(1)), asynq.ProcessIn(2*time.Minute)), state: archived, text: tooLate, reported: 1},
		"too late, run":                          {rule: waits(Rule{OnMaxWait: ActionRun}), opts: opts(asynq.Deadline(at(1)), asynq.ProcessIn(2*time.Minute)), state: archived, text: tooLate, reported: 1},
		"too late, drop":                         {rule: waits(Rule{OnMaxWait: ActionDrop}), opts: opts(asynq.Deadline(at(1)), asynq.ProcessIn(2*time.Minute)), reported: 1},
		"deadline in the handler":                {opts: opts(asynq.Deadline(at(1))), handle: takes(2 * time.Minute), state: archived, text: tooLate, runs: 1, retried: 1, reported: -1},
		"timeout, rule's policy":                 {rule: Rule{Retry: hour}, opts: opts(asynq.Timeout(3 * time.Second)), handle: takes(5 * time.Second), state: retry, text: "context deadline exceeded", runs: 1, retried: 1, reported: 1},

		"rule fails":    {find: fails(errors.New("caf\xe9")), state: archived, text: shown, retried: 2, reported: 3},
		"rule archives": {find: fails(fmt.Errorf("no such customer: %w", asynq.SkipRetry)), state: archived, text: "no such customer", reported: 1},
		"rule panics":   {find: func(*asynq.Task) (Rule, error) { panic("a fault") }, opts: opts(asynq.MaxRetry(0)), state: archived, text: "a fault", reported: 1},
		"rule ends":     {find: func(*asynq.Task) (Rule, error) { runtime.Goexit(); return Rule{}, nil }, opts: opts(asynq.MaxRetry(0)), state: archived, text: "RuleFor ended its goroutine", reported: 1},
		"rule fails at once": {find: func(*asynq.Task) (Rule, error) {
			asked++
			return Rule{}, [3]error{errors.New("no database")}[min(asked-1, 2)]
		}, runs: 1, reported: 1},

		"completed":                   {rule: needs("api"), opts: opts(asynq.Timeout(10*time.Second), asynq.Deadline(at(60)), asynq.Retention(time.Hour)), state: asynq.TaskStateCompleted, runs: 1},
		"completed, rule's retention": {rule: Rule{Retention: time.Hour}, opts: opts(asynq.Timeout(10 * time.Second)), state: asynq.TaskStateCompleted, runs: 1},
		"put back, text":              {opts: opts(asynq.Timeout(10*time.Second), asynq.Deadline(at(120))), handle: returns(fmt.Errorf("caf\xe9: %w", RetryAfter(time.Hour))), state: retry, text: shown, runs: 1},
		"rate limited, text":          {rule: needs("api"), handle: returns(fmt.Errorf("caf\xe9: %w", RateLimited(at(60)))), state: retry, text: shown, runs: 1},
		"failure, text":               {rule: Rule{Retry: hour}, opts: opts(asynq.Timeout(10*time.Second), asynq.Deadline(at(120))), handle: returns(errors.New("caf\xe9")), state: retry, text: shown, runs: 1, retried: 1, reported: 1},
		"SkipRetry, text":             {opts: opts(asynq.Timeout(10 * time.Second)), handle: returns(fmt.Errorf("caf\xe9: %w", asynq.SkipRetry)), state: archived, text: shown, runs: 1, reported: 1},
		"handler panics":              {opts: opts(asynq.MaxRetry(0)), handle: panics, state: archived, text: "a fault", runs: 1, reported: 1},
		"rate limited too long":       {rule: waits(Rule{MaxWait: 2 * time.Minute}), handle: returns(RateLimited(at(60))), state: archived, text: waited, runs: 1, reported: 1},
		"nothing to block":            {opts: opts(asynq.MaxRetry(0)), handle: blocks, state: archived, text: "blocked by the upstream", runs: 2, reported: 1},
		"rule blocks nothing":         {rule: waits(Rule{BlockOnRateLimit: []string{}, OnMaxWait: ActionRun, MaxWait: time.Second}), opts: opts(asynq.MaxRetry(0)), handle: blocks, state: archived, text: "blocked by the upstream", runs: 2, reported: 1},
		"rule blocks other keys":      {rule: waits(Rule{BlockOnRateLimit: []string{"other"}, OnMaxWait: ActionRun, MaxWait: time.Second}), opts: opts(asynq.MaxRetry(0)), handle: blocks, state: archived, text: "blocked by the upstream", runs: 2, reported: 1},
	} {
		t.Run(name, func(t *testing.T) {
			if row.find == nil {
				row.find = always(row.rule)
			}
			virtual(t, settings{limits: []throttle.Limit{each(time.Minute)}, rule: row.find, handle: row.handle}, func(t *testing.T, st *stack) {
				st.takePermit("api")
				id := st.enqueue(NewTask("job", nil, asynq.MaxRetry(2)), row.opts...)
				before := st.info(id)
				time.Sleep(30 * time.Second)
				if row.during != nil {
					row.during(st)
				}
				time.Sleep(4*time.Minute + 30*time.Second)
				info := st.wantJob(id, row.state, row.text)
				if info != nil && (info.Retried != row.retried || info.MaxRetry != before.MaxRetry || info.Timeout != before.Timeout || !info.Deadline.Equal(before.Deadline)) {
					t.Errorf("job: %+v, want it retried %d times, and as it was enqueued: %+v", info, row.retried, before)
				}
				st.wantRuns(row.runs)
				if n := len(st.reported); row.reported >= 0 && n != row.reported {
					t.Errorf("%d errors were reported, want %d: %v", n, row.reported, st.reported)
				}
				if row.state != retry {
					st.wantClean()
				}
			})
		})
	}
}
