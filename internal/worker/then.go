package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/expression"
	"github.com/headgate/headgate/internal/jobspec"
	"github.com/headgate/headgate/scheduler"
)

// thenRetention is how long a job that followed on another is kept at least when
// it is done. A job that runs again, because a crash came between it and its
// acknowledgement, then finds that the next one is there.
const thenRetention = 10 * time.Minute

// goOn enqueues what follows on a job that is done, before the job is
// acknowledged: a crash in between runs the job again, and what follows has an ID
// that is refused the second time.
func (w *Worker) goOn(next asynq.Handler) asynq.Handler {
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
		jobs, err := following(c, done, then, key)
		if err != nil {
			return err
		}
		return w.enqueueAll(ctx, jobs)
	})
}

// done is the job with the result that its handler has written.
func (w *Worker) done(ctx context.Context, task *asynq.Task) (*expression.Done, error) {
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

// following are the jobs that follow on one that is done. All are worked out before
// the first is enqueued: where an expression fails, none is.
func following(c *config.Config, done *expression.Done, then []config.Then, key string) ([]jobspec.Job, error) {
	var jobs []jobspec.Job
	for i, t := range then {
		payload, ok, err := t.Next(done)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", err, asynq.SkipRetry)
		}
		if !ok {
			continue
		}
		// The job's own ID is for people, and does not tell it from a later one's.
		job := jobspec.Job{Type: t.Type, Payload: payload, ID: fmt.Sprintf("%s/then/%d/%.8s", done.ID, i, key)}
		job.Queue = cmp.Or(t.Queue, done.Queue)
		job = job.Fill(jobspec.Options{}, c)
		job.Retention = max(job.Retention, thenRetention)
		jobs = append(jobs, job)
	}
	return jobs, nil
}

// enqueueAll enqueues jobs, as many as it can, but for those that are there already.
func (w *Worker) enqueueAll(ctx context.Context, jobs []jobspec.Job) error {
	client := asynq.NewClientFromRedisClient(w.store)
	var all error
	for _, job := range jobs {
		if _, err := client.EnqueueContext(ctx, job.Task()); err != nil && !errors.Is(err, asynq.ErrTaskIDConflict) {
			all = errors.Join(all, fmt.Errorf("then %s: %w", job.Type, err))
		}
	}
	return all
}
