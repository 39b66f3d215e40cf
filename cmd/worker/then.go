package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/cli"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/expression"
	"github.com/headgate/headgate/scheduler"
)

// thenRetention is how long a job that followed on another is kept at least when
// it is done. A job that runs again, because a crash came between it and its
// acknowledgement, then finds that the next one is there.
const thenRetention = 10 * time.Minute

// goOn enqueues what follows on a job that is done, before the job is
// acknowledged: a crash in between runs the job again, and what follows has an ID
// that is refused the second time.
func (w *worker) goOn(next asynq.Handler) asynq.Handler {
	return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		if err := next.ProcessTask(ctx, task); err != nil {
			return err
		}
		c := w.config.Load()
		then := c.Tasks[task.Type()].Then
		if len(then) == 0 {
			return nil
		}
		done, err := w.done(ctx, task)
		if err != nil {
			return err
		}
		key, err := scheduler.IdempotencyKey(ctx)
		if err != nil {
			return fmt.Errorf("then: %w", err)
		}
		for i, t := range then {
			// The job's own ID is for people, and does not tell it from a later one's.
			err = errors.Join(err, w.enqueueThen(ctx, c, done, t, fmt.Sprintf("%s/then/%d/%.8s", done.ID, i, key)))
		}
		return err
	})
}

// done is the job with the result that its handler has written.
func (w *worker) done(ctx context.Context, task *asynq.Task) (*expression.Done, error) {
	id, _ := asynq.GetTaskID(ctx)
	queue, _ := asynq.GetQueueName(ctx)
	d := &expression.Done{Job: expression.Job{Type: task.Type(), Queue: queue, ID: id, Payload: task.Payload()}}
	info, err := asynq.NewInspectorFromRedisClient(w.store).GetTaskInfo(queue, id)
	if err != nil {
		return d, fmt.Errorf("then: the job's own result: %w", err)
	}
	d.Result = info.Result
	return d, nil
}

func (w *worker) enqueueThen(ctx context.Context, c *config.Config, done *expression.Done, t config.Then, id string) error {
	payload, ok, err := t.Next(done)
	if err != nil {
		return fmt.Errorf("%w: %w", err, asynq.SkipRetry)
	}
	if !ok {
		return nil
	}
	job := cli.Job{Type: t.Type, Payload: payload, ID: id}
	job.Queue = t.Queue
	if job.Queue == "" {
		job.Queue = done.Queue
	}
	job.Retention = max(thenRetention, c.Tasks[t.Type].Retention)
	_, err = asynq.NewClientFromRedisClient(w.store).EnqueueContext(ctx, job.Fill(cli.JobOptions{}, c).Task())
	if errors.Is(err, asynq.ErrTaskIDConflict) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("then %s: %w", t.Type, err)
	}
	return nil
}
