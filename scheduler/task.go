package scheduler

import (
	"slices"

	"github.com/hibiken/asynq"
)

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
