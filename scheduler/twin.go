package scheduler

import (
	"context"
	"errors"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/throttle"
)

// replace puts back a job that asynq would archive: one that was enqueued
// without a spare retry and is on its last attempt. A twin with a spare retry
// takes its place, and the job itself is finished. The twin's ID follows from
// the job's, so a crash in between, or a repeat, makes no second twin.
func (t *Throttler) replace(ctx context.Context, task *asynq.Task, a attempt, d throttle.Decision, delay time.Duration) error {
	info, err := t.tasks.GetTaskInfo(a.queue, a.id)
	if err != nil {
		return &deniedError{d, delay}
	}
	opts := []asynq.Option{
		asynq.TaskID(a.id + ":spare"), asynq.Queue(a.queue), asynq.MaxRetry(1), asynq.ProcessIn(delay),
		asynq.Timeout(info.Timeout), asynq.Retention(info.Retention),
	}
	if !info.Deadline.IsZero() {
		opts = append(opts, asynq.Deadline(info.Deadline))
	}
	twin := asynq.NewTaskWithHeaders(task.Type(), task.Payload(), a.spared())
	_, err = t.client.EnqueueContext(ctx, twin, opts...)
	if err != nil && !errors.Is(err, asynq.ErrTaskIDConflict) {
		return &deniedError{d, delay}
	}
	t.note(t.limiter.Forget(ctx, a.id))
	return errReplaced
}
