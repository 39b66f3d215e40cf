package scheduler

import (
	"fmt"
	"slices"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/waitdb"
)

// PriorityLevel orders jobs that wait for the same permits in one queue. It is a limited head
// start: a job of any level gets its turn, however many jobs of high priority come.
type PriorityLevel string

// The levels. The zero value means PriorityNormal. A job overtakes jobs of the next lower level
// that joined the lane at most 1000 jobs earlier. So at most 2000 later jobs overtake a job of low
// priority.
const (
	PriorityNormal PriorityLevel = "normal"
	PriorityHigh   PriorityLevel = "high"
	PriorityLow    PriorityLevel = "low"
)

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *PriorityLevel) UnmarshalText(text []byte) error {
	return choose(p, text, PriorityNormal, PriorityHigh, PriorityLow)
}

var waitdbPriority = map[PriorityLevel]waitdb.Priority{PriorityNormal: waitdb.Normal, PriorityHigh: waitdb.High, PriorityLow: waitdb.Low}

// NewTask is like asynq.NewTask, and also takes the options [Priority], [ShardKey] and
// [InBatch]. It copies opts. Limits also apply to tasks that asynq.NewTask made and that programs without headgate
// enqueued.
func NewTask(typename string, payload []byte, opts ...asynq.Option) *asynq.Task {
	// A copy without spare capacity, because asynq appends to the slice at each Enqueue.
	return asynq.NewTaskWithHeaders(typename, payload, headersIn(opts), slices.Clip(slices.Clone(opts))...)
}

// Priority returns an option with a job's own priority, which replaces the priority of its rule.
// NewTask and a Client's Enqueue take the option; asynq's own functions ignore it. If the option is
// given several times, the last one applies. A value that is no level changes nothing.
func Priority(p PriorityLevel) asynq.Option { return headerOption{headerPriority, string(p)} }

// The headers of a task that has a priority or a shard key of its own.
const (
	headerPriority = "headgate-priority"
	headerShardKey = "headgate-shard-key"
)

// headerOption is an option that is stored in a header of the task. It implements asynq.Option.
type headerOption struct{ name, value string }

func (o headerOption) String() string         { return fmt.Sprintf("%s(%q)", o.name, o.value) }
func (o headerOption) Type() asynq.OptionType { return -1 } // asynq has no option of this type
func (o headerOption) Value() any             { return o.value }

// headersIn returns the headers that options set.
func headersIn(opts []asynq.Option) map[string]string {
	headers := map[string]string{}
	for _, opt := range opts {
		if own, ok := opt.(headerOption); ok {
			headers[own.name] = own.value
		}
	}
	return headers
}
