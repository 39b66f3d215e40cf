package scheduler

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/scheduler/lanes"
)

// headerPriority is the header of a task that has a priority of its own.
const headerPriority = "headgate-priority"

// Priority returns an option that has a job go before or after others that
// wait for the same permits, whatever its rule says. It travels with the job, as a
// header. NewTask and a Client's Enqueue take it; asynq's own functions pass over
// it. Of several the last counts.
func Priority(p lanes.Priority) asynq.Option { return priorityOption(p) }

// priorityOption is the option of [Priority]. Its methods are those of
// asynq.Option.
type priorityOption lanes.Priority

func (p priorityOption) String() string         { return fmt.Sprintf("Priority(%d)", int(p)) }
func (p priorityOption) Type() asynq.OptionType { return -1 } // none of asynq's
func (p priorityOption) Value() any             { return lanes.Priority(p) }

// NewTask is asynq.NewTask with options of headgate's among the others, in any
// order; it keeps a copy of them. Tasks that asynq.NewTask makes, and programs
// without headgate enqueue, obey limits just as well.
func NewTask(typename string, payload []byte, opts ...asynq.Option) *asynq.Task {
	var headers map[string]string
	if p, ok := priorityIn(opts); ok {
		headers = map[string]string{headerPriority: formatPriority(p)}
	}
	// A copy, without room to spare: asynq appends to it at each Enqueue.
	return asynq.NewTaskWithHeaders(typename, payload, headers, slices.Clip(slices.Clone(opts))...)
}

// priorityIn finds the last Priority among options.
func priorityIn(opts []asynq.Option) (p lanes.Priority, ok bool) {
	for _, opt := range opts {
		if own, is := opt.(priorityOption); is {
			p, ok = lanes.Priority(own), true
		}
	}
	return p, ok
}

// formatPriority is a priority as the header has it.
func formatPriority(p lanes.Priority) string { return strconv.Itoa(int(p)) }
