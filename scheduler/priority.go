package scheduler

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/throttle"
)

// PriorityLevel orders jobs that wait for the same permits in one queue. It is a limited head
// start: a job of any level gets its turn, however many jobs of high priority come. Its text, also
// in config files, is normal, high or low. UnmarshalText returns a [*throttle.FieldError] for any
// other text.
type PriorityLevel int

// The levels; PriorityNormal is the zero value. A job overtakes jobs of the next lower level that
// joined the lane at most 1000 jobs earlier. So at most 2000 later jobs overtake a job of low
// priority.
const (
	PriorityNormal PriorityLevel = iota // the values are those of waitdb.Priority
	PriorityHigh
	PriorityLow
)

var priorities = []string{PriorityNormal: "normal", PriorityHigh: "high", PriorityLow: "low"}

// String returns the level in lower case.
func (p PriorityLevel) String() string {
	if p < 0 || int(p) >= len(priorities) {
		return strconv.Itoa(int(p))
	}
	return priorities[p]
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *PriorityLevel) UnmarshalText(text []byte) error {
	i := slices.Index(priorities, string(text))
	if i < 0 {
		return &throttle.FieldError{Field: "priority", Value: strconv.Quote(string(text)), Want: "want one of " + strings.Join(priorities, ", ")}
	}
	*p = PriorityLevel(i)
	return nil
}

// headerPriority is the header of a task that has a priority of its own.
const headerPriority = "headgate-priority"

// NewTask is like asynq.NewTask, and also takes the option [Priority]. It copies opts. Limits also
// apply to tasks that asynq.NewTask made and that programs without headgate enqueued.
func NewTask(typename string, payload []byte, opts ...asynq.Option) *asynq.Task {
	headers := map[string]string{}
	if p, ok := priorityIn(opts); ok {
		headers[headerPriority] = formatPriority(p)
	}
	if key, ok := shardKeyIn(opts); ok {
		headers[headerShardKey] = key
	}
	// A copy without room to spare, because asynq appends to it at each Enqueue.
	return asynq.NewTaskWithHeaders(typename, payload, headers, slices.Clip(slices.Clone(opts))...)
}

// Priority returns an option with a job's own priority, which replaces the priority of its rule. It
// is stored in a header of the job. NewTask and a Client's Enqueue take the option; asynq's own
// functions ignore it. The last of several applies.
func Priority(p PriorityLevel) asynq.Option { return priorityOption(p) }

// priorityOption implements asynq.Option.
type priorityOption PriorityLevel

func (p priorityOption) String() string         { return fmt.Sprintf("Priority(%d)", int(p)) }
func (p priorityOption) Type() asynq.OptionType { return -1 } // none of asynq's
func (p priorityOption) Value() any             { return PriorityLevel(p) }

// priorityIn finds the last Priority among options.
func priorityIn(opts []asynq.Option) (p PriorityLevel, ok bool) {
	for _, opt := range opts {
		if own, is := opt.(priorityOption); is {
			p, ok = PriorityLevel(own), true
		}
	}
	return p, ok
}

func formatPriority(p PriorityLevel) string { return strconv.Itoa(int(p)) }
