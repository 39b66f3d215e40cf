package scheduler

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/enum"
	"github.com/headgate/headgate/throttle"
)

// Rules say which limits there are, and what each task needs of them. A server
// asks them once for each attempt, so they may look at the payload, at a database
// or at a config that changes; then [Server.RulesChanged] has those ask again who wait.
type Rules struct {
	// Limits are made known to the limiter when the server starts, and again
	// if it has lost them. Limits that something else defines need not be
	// among them.
	Limits []throttle.Limit
	// For finds the rule of a task: once for each attempt, before it runs, and of jobs
	// that wait when rules have changed. Its context is the server's BaseContext, tells
	// which job it is, see [GetJob], and ends with the job's Timeout or Deadline, or after 5 s
	// for a job that waits. If For panics, or has not returned by then, the attempt has failed.
	// It is called in several goroutines at a time. Where
	// it fails the attempt has failed with that error, and asynq retries the task as
	// after any other: a database may answer next time. An error that wraps
	// asynq.SkipRetry archives the task at once. After an error that wraps
	// throttle.ErrUnavailable the task is put back for a second, and nothing has failed.
	// It never runs unlimited.
	RuleFor func(ctx context.Context, task *asynq.Task) (Rule, error)
}

// Rule is what one job needs before it runs, and what becomes of it if it cannot
// have that. The zero value needs nothing: the job runs as in asynq.
//
//	scheduler.Rule{
//		Needs:   []throttle.Need{{Limit: "api"}, {Limit: "host", Key: host}},
//		MaxWait: time.Hour,
//	}
type Rule struct {
	// Needs are the permits that the job takes, all or none. With none of them
	// the job runs at once, and no limiter is asked.
	Needs []throttle.Need
	// Priority is for a job that brings none of its own: see [Priority].
	Priority PriorityLevel
	// Fair is the key, as of a tenant, for which the jobs of a queue take turns where they
	// wait for the same permits, and Weight how many it has while a key of weight 1 has one:
	// see [waitdb.Job]. It needs no limit of its own.
	FairnessKey    string
	FairnessWeight int
	// MaxWait is how long the job may wait for its permits; the zero value
	// means any time. OnMaxWait is what becomes of a job that has waited for that
	// long, or until its own deadline.
	MaxWait   time.Duration
	OnMaxWait Action
	// OnNoLimit is what becomes of a job whose limit does not exist.
	OnNoLimit Action
	// Blocks names the limits whose keys are shut for everybody when the other side
	// refuses the job's call: see Blocked. Nil means those that the job has a key
	// of, or all where it has none.
	BlockOnRateLimit []string
	// Retry spaces the attempts of a job that fails. Nil leaves that to the
	// server's RetryDelayFunc.
	Retry *RetryPolicy
	// RetryAt is where a job waits that comes again after an attempt.
	RetryPosition RetryPosition
}

// shuts is the needs whose keys a refusal shuts. Unless the rule names them it is
// those with a key: a host that refuses should not shut a limit which other hosts
// share.
func (r Rule) blockedNeeds() []throttle.Need {
	if r.BlockOnRateLimit != nil {
		return r.needs(func(n throttle.Need) bool { return slices.Contains(r.BlockOnRateLimit, n.Limit) })
	}
	if keyed := r.needs(func(n throttle.Need) bool { return n.Key != "" }); len(keyed) > 0 {
		return keyed
	}
	return r.Needs
}

// meterNames are the limits of needs with their keys, for logs: "host of example.com, api".
func meterNames(needs []throttle.Need) string {
	names := make([]string, len(needs))
	for i, n := range needs {
		if names[i] = n.Limit; n.Key != "" {
			names[i] += " of " + n.Key
		}
	}
	return strings.Join(names, ", ")
}

// needs is those of which something holds.
func (r Rule) needs(which func(throttle.Need) bool) (some []throttle.Need) {
	for _, n := range r.Needs {
		if which(n) {
			some = append(some, n)
		}
	}
	return some
}

// priorityOf is the task's own priority, or else that of its rule. A header that is
// no number counts as none: any producer can write one.
func priorityOf(task *asynq.Task, rule Rule) PriorityLevel {
	if p, err := strconv.Atoi(task.Headers()[headerPriority]); err == nil {
		return PriorityLevel(p)
	}
	return rule.Priority
}

// Action is what becomes of a job that cannot have its permits: one that has to
// wait for too long, or whose limit does not exist.
type Action int

// The actions. Archive is the zero value.
const (
	ActionArchive Action = iota // keep it in asynq's archive, with the reason
	ActionDrop                  // delete it
	ActionRun                   // run it without a permit
)

var actions = enum.Names{"archive", "drop", "run"}

// String is the action in lower case.
func (a Action) String() string { return actions.Text(int(a)) }

// MarshalText implements encoding.TextMarshaler.
func (a Action) MarshalText() ([]byte, error) { return actions.Marshal(int(a)) }

// UnmarshalText implements encoding.TextUnmarshaler.
func (a *Action) UnmarshalText(text []byte) error { return actions.Unmarshal(text, (*int)(a)) }
