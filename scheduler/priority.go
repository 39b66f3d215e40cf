package scheduler

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/throttle"
)

// PriorityLevel orders jobs that wait for the same permits in one queue. It is a head start and not a
// class of its own: a job of any level gets its turn, however many high-priority jobs come. As text, in
// config files too, it is normal, high or low; UnmarshalText returns a [*throttle.FieldError] for any
// other text.
type PriorityLevel int

// The levels; PriorityNormal is the zero value. A job goes before those of the next lower level that
// began to wait up to 1000 jobs earlier, and no further: so a low-priority job is overtaken by at most
// 2000 jobs that came after it.
const (
	PriorityNormal PriorityLevel = iota // these are waitdb's in their order
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

// NewTask is asynq.NewTask with options of headgate's among the others, in any order; it keeps a copy
// of them. Tasks that asynq.NewTask makes, and programs without headgate enqueue, obey limits as well.
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

// Priority returns an option that puts a job before or after others that wait for the same permits,
// whatever its rule says. It travels with the job, as a header. NewTask and a Client's Enqueue take it;
// asynq's own functions ignore it. The last of several counts.
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

// priorityOf returns the task's own priority, or else that of its rule. A header that is no number is
// ignored: any producer can write one.
func priorityOf(task *asynq.Task, rule Rule) PriorityLevel {
	if p, err := strconv.Atoi(task.Headers()[headerPriority]); err == nil {
		return PriorityLevel(p)
	}
	return rule.Priority
}
