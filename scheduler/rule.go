package scheduler

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/throttle"
)

// Rules say which limits there are, and what each task needs of them. A server asks them once for each
// attempt, so they may look at the payload, at a database or at a config that changes. After a change
// [Server.RulesChanged] makes the waiting jobs ask again.
type Rules struct {
	// Limits are defined when the server starts, and again if the limiter has lost them. Limits that
	// something else defines need not be among them.
	Limits []throttle.Limit
	// RuleFor returns the rule of a task: once for each attempt, before it runs, and for waiting jobs
	// when rules have changed. Its context is the server's BaseContext, tells which job it is, see
	// [GetJob], and ends with the job's Timeout or Deadline, or after 5 s for a waiting job. It is
	// called in several goroutines at a time.
	//
	// If RuleFor returns an error, panics, or has not returned when its context ends, the attempt has
	// failed, and asynq retries the task as after any other failure. An error that wraps
	// asynq.SkipRetry archives the task at once. After an error that wraps throttle.ErrUnavailable the
	// task is put back for a second, and nothing has failed. The task never runs unlimited.
	RuleFor func(ctx context.Context, task *asynq.Task) (Rule, error)
}

// Rule is what one job needs before it runs, and what becomes of it if it cannot have that. The zero
// value needs nothing: the job runs as in asynq.
//
//	scheduler.Rule{
//		Needs:   []throttle.Need{{Limit: "api"}, {Limit: "host", Key: host}},
//		MaxWait: time.Hour,
//	}
type Rule struct {
	// Needs are the permits that the job takes, all or none. Without needs the job runs at once, and
	// no limiter is asked.
	Needs []throttle.Need
	// Priority is for a job without a priority of its own: see [Priority].
	Priority PriorityLevel
	// FairnessKey is the key, for example of a tenant, by which the jobs of a queue take turns if
	// they wait for the same permits. FairnessWeight is how many turns it has while a key of weight 1
	// has one; the zero value means 1. A fairness key needs no limit of its own.
	FairnessKey    string
	FairnessWeight int
	// MaxWait is how long the job may wait for its permits; the zero value means any time. OnMaxWait
	// is what becomes of a job that has waited so long, or until its own deadline.
	MaxWait   time.Duration
	OnMaxWait Action
	// OnNoLimit is what becomes of a job whose limit does not exist.
	OnNoLimit Action
	// BlockOnRateLimit names the limits whose keys are blocked for all workers when the upstream
	// rejects the job's call: see RateLimited. Nil means those at which the job has a key, or all if
	// it has none, because a host that rejects calls should not block a limit that hosts share.
	BlockOnRateLimit []string
	// Retry spaces the attempts of a job that fails. Nil leaves that to the server's RetryDelayFunc.
	Retry *RetryPolicy
	// RetryPosition is where a job waits that comes again after an attempt.
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

// Action is what becomes of a job that cannot have its permits, because it would wait too long or its
// limit does not exist.
type Action string

// The actions. The zero value means ActionArchive.
const (
	ActionArchive Action = "archive" // keep the job in asynq's archive, with the reason
	ActionDrop    Action = "drop"    // delete the job
	ActionRun     Action = "run"     // run the job without permits
)

// UnmarshalText implements encoding.TextUnmarshaler.
func (a *Action) UnmarshalText(text []byte) error {
	return choose(a, text, ActionArchive, ActionDrop, ActionRun)
}
