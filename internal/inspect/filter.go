package inspect

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/scheduler/lanes"
	"github.com/headgate/headgate/throttle"
)

// Filter says which jobs are meant. The zero value means all.
type Filter struct {
	States     []string // of States; any where there are none
	Queue      string
	Type       string
	Limit, Key string // those that wait for it, or are called
	Payload    string // a part of it
	Error      string // a part of it
	// Older is for how long they have been in their state at least. Those of which nobody
	// knows it are not meant.
	Older time.Duration
}

// Check reports the first word of it that makes no sense, as a *throttle.FieldError, or that
// there is no such limit.
func (f Filter) Check(ctx context.Context, limiter *lanes.Lanes) error {
	for _, state := range f.States {
		want := ""
		switch {
		case !slices.Contains(States, state):
			want = "want " + strings.Join(States, ", ")
		case f.Limit+f.Key != "" && state != Waiting && state != Called:
			want = "with a limit or a key want waiting or called: no other job waits for a limit"
		case f.Older != 0 && state == "scheduled":
			return &throttle.FieldError{Field: "older", Value: f.Older.String(), Want: "want another state than scheduled: nobody knows since when those are"}
		}
		if want != "" {
			return &throttle.FieldError{Field: "state", Value: state, Want: want}
		}
	}
	if f.Older < 0 {
		return &throttle.FieldError{Field: "older", Value: f.Older.String(), Want: "want a time up to now, such as 24h"}
	}
	if f.Limit == "" {
		return nil
	}
	limits, err := limiter.Limits(ctx)
	if err == nil && !slices.ContainsFunc(limits, func(l throttle.Limit) bool { return l.Name == f.Limit }) {
		err = fmt.Errorf("%w: %s", throttle.ErrNoLimit, f.Limit)
	}
	return err
}

// says reports what can be told without a look at the place and the time.
func (f Filter) says(job *asynq.TaskInfo) bool {
	return (f.Type == "" || job.Type == f.Type) &&
		strings.Contains(string(job.Payload), f.Payload) && strings.Contains(job.LastErr, f.Error)
}

// Means reports whether a job is meant.
func (f Filter) Means(job Job) bool {
	return f.says(job.TaskInfo) && f.wants(job.State) && (f.Queue == "" || job.Queue == f.Queue) && f.waits(job) &&
		(f.Older == 0 || !job.Since.IsZero() && time.Since(job.Since) > f.Older)
}

func (f Filter) wants(states ...string) bool {
	return slices.ContainsFunc(states, func(state string) bool {
		return (len(f.States) == 0 || slices.Contains(f.States, state)) &&
			(f.Limit == "" && f.Key == "" || state == Waiting || state == Called)
	})
}

func (f Filter) waits(job Job) bool {
	if f.Limit == "" && f.Key == "" {
		return true
	}
	return job.Place != nil && slices.ContainsFunc(job.Place.Lane.Meters, func(meter string) bool {
		limit, key, _ := strings.Cut(meter, "|")
		return (f.Limit == "" || f.Limit == limit) && (f.Key == "" || f.Key == key)
	})
}
