package scheduler

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/throttle"
)

// Rules define the limits, and what each task needs of them. RuleFor is called for each attempt, so
// it may use the payload, a database or a config that changes. After a change call
// [Server.RulesChanged] for the waiting jobs.
type Rules struct {
	// Limits are defined when the server starts, and again if the limiter has lost them. Limits
	// that are defined elsewhere need not be listed.
	Limits []throttle.Limit
	// RuleFor returns the rule of a task. It is called before each attempt, for waiting jobs when
	// rules have changed, and for pending jobs when the backlog is forecast, and when fairness keys
	// take turns. Several goroutines may call it at the same time. Its context is derived from the
	// server's BaseContext, and holds the job, see [GetJob]. The context ends with the job's Timeout or
	// Deadline, or within 5 s for a waiting or pending job.
	//
	// If RuleFor returns an error, panics, or does not return before its context ends, the attempt
	// fails, and asynq retries the task as after any other failure. An error that wraps
	// asynq.SkipRetry archives the task at once. After an error that wraps throttle.ErrUnavailable
	// the task is put back for a second, which is no failure. The task never runs without its rule.
	RuleFor func(ctx context.Context, task *asynq.Task) (Rule, error)
}

// Rule is the permits that one job needs before it runs, and what happens if it cannot get them.
// The zero value needs nothing: the job runs as in asynq.
//
//	scheduler.Rule{
//		Needs:   []throttle.Need{{Limit: "api"}, {Limit: "host", Key: host}},
//		MaxWait: time.Hour,
//	}
type Rule struct {
	// Needs are the permits that the job takes, all or none. Without needs the job runs at once,
	// without a call to the limiter.
	Needs []throttle.Need
	// Priority is for a job without a priority of its own: see [Priority].
	Priority PriorityLevel
	// FairnessKey is a key, for example of a tenant, by which the jobs of a queue take turns if
	// they wait for the same permits, or for worker slots. Jobs without a key count as those of one
	// key. FairnessWeight is how many turns the key has while a key of weight 1 has one; the zero
	// value means 1. FairnessKey need not be a key of any limit.
	FairnessKey    string
	FairnessWeight int
	// MaxWait is the longest time for which the job waits for its permits. The zero value means no
	// maximum. OnMaxWait is what happens to a job that still waits at the end of its MaxWait, or a
	// second before its own deadline. Its zero value means ActionArchive. A job whose deadline has
	// passed is never run.
	MaxWait   time.Duration
	OnMaxWait Action
	// OnNoLimit is what happens to a job whose limit does not exist, or is for other apps. The zero
	// value means ActionWait.
	OnNoLimit Action
	// BlockOnRateLimit names the limits whose keys are blocked for all workers when the upstream
	// rejects the job's call: see RateLimited. Nil means the limits for which the job has a key, or
	// all its limits if it has no key: a host that rejects calls should not block a shared limit.
	// An empty list blocks nothing.
	BlockOnRateLimit []string
	// Retention is how long a job without a retention of its own is kept when it is done, with its
	// result. The zero value means that such a job is deleted, as in asynq.
	Retention time.Duration
	// Retry says how often and when a failed job is retried. Nil leaves that to the job's MaxRetry
	// and the server's RetryDelayFunc.
	Retry *RetryPolicy
	// RetryPosition is where the job waits after an attempt that failed, or that returned
	// RetryAfter.
	RetryPosition RetryPosition
}

// blockedNeeds returns the needs whose keys are blocked when the upstream rejects a call.
func (r Rule) blockedNeeds() []throttle.Need {
	needs := slices.DeleteFunc(slices.Clone(r.Needs), func(n throttle.Need) bool {
		return r.BlockOnRateLimit == nil && n.Key == "" || r.BlockOnRateLimit != nil && !slices.Contains(r.BlockOnRateLimit, n.Limit)
	})
	if r.BlockOnRateLimit == nil && len(needs) == 0 {
		return r.Needs
	}
	return needs
}

// meterNames returns the limits of needs with their keys, for logs: "host of example.com, api".
func meterNames(needs []throttle.Need) string {
	names := make([]string, len(needs))
	for i, n := range needs {
		if names[i] = n.Limit; n.Key != "" {
			names[i] += " of " + n.Key
		}
	}
	return strings.Join(names, ", ")
}

// Action is what happens to a job that cannot get its permits, because it would wait too long or
// its limit does not exist.
type Action string

// The actions.
const (
	ActionWait    Action = "wait"    // only for OnNoLimit: the job waits until the limit is defined
	ActionArchive Action = "archive" // keep the job in asynq's archive, with the reason
	ActionDrop    Action = "drop"    // delete the job
	ActionRun     Action = "run"     // run the job without permits
)

// UnmarshalText implements encoding.TextUnmarshaler.
func (a *Action) UnmarshalText(text []byte) error {
	return choose(a, text, ActionWait, ActionArchive, ActionDrop, ActionRun)
}
