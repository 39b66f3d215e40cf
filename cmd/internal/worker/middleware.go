package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/cmd/internal/config"
	"github.com/headgate/headgate/cmd/internal/expression"
	"github.com/headgate/headgate/cmd/internal/jobspec"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/tasks"
)

// logJob logs a line for each finished attempt.
func (w *Worker) logJob(next asynq.Handler) asynq.Handler {
	return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		began := time.Now()
		err := next.ProcessTask(ctx, task)
		queue, id, _ := scheduler.GetJob(ctx)
		retried, _ := asynq.GetRetryCount(ctx)
		d, _ := scheduler.GetDecision(ctx)
		w.log.LogAttrs(ctx, slog.LevelInfo, "job ended", slog.String("outcome", w.outcome(ctx, err)),
			slog.String("type", task.Type()), slog.String("id", id), slog.String("queue", queue), slog.Int("attempt", retried+1),
			slog.Time("started", began), slog.Duration("took", time.Since(began)),
			slog.Int("denials", d.Denials), slog.Duration("waited", d.Waited))
		return err
	})
}

func (w *Worker) outcome(ctx context.Context, err error) string {
	switch {
	case err == nil:
		return "done"
	case errors.Is(err, asynq.RevokeTask):
		return "dropped"
	case scheduler.IsPutBack(err), w.stopping.Load() && errors.Is(ctx.Err(), context.Canceled):
		return "put back"
	}
	return "failed"
}

// costs returns the actual costs of a finished job by limit.
func (w *Worker) costs(ctx context.Context, task *asynq.Task, result func() ([]byte, error)) (map[string]int, error) {
	return w.config.Load().Tasks.Costs(config.JobOf(ctx, task), result)
}

// judge returns what a response to a job's call means, by the config's conditions.
func (w *Worker) judge(ctx context.Context, task *asynq.Task, r tasks.Response) tasks.Verdict {
	verdict, err := w.config.Load().Tasks.Judge(config.JobOf(ctx, task), r)
	if err != nil {
		w.log.Warn("a condition on a response fails and counts as false", "type", task.Type(), "status", r.Status, "error", err)
	}
	return verdict
}

// thenRetention is the shortest time for which a next job is kept. If a crash makes the first job
// run again within this time, its next jobs are not enqueued twice.
const thenRetention = 10 * time.Minute

// enqueueNext enqueues the jobs that follow a finished job, before asynq acknowledges the job. If a
// crash comes between, the job runs again, and asynq rejects the IDs of its next jobs as duplicates.
func (w *Worker) enqueueNext(next asynq.Handler) asynq.Handler {
	return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		if err := next.ProcessTask(ctx, task); err != nil {
			return err
		}
		c := w.config.Load()
		then := c.Next(task.Type())
		if len(then) == 0 {
			return nil
		}
		done := &expression.Done{Job: *config.JobOf(ctx, task)}
		queue, _, _ := scheduler.GetJob(ctx)
		info, err := asynq.NewInspectorFromRedisClient(w.redis).GetTaskInfo(queue, done.ID)
		if err != nil {
			return fmt.Errorf("then: the job's own result: %w", err)
		}
		done.Result = info.Result
		key, err := scheduler.IdempotencyKey(ctx)
		if err != nil {
			return fmt.Errorf("then: %w", err)
		}
		jobs, err := nextJobs(c, done, then, key)
		if err != nil {
			return err
		}
		var tasks []*asynq.Task
		for _, job := range jobs {
			tasks = append(tasks, job.Task(scheduler.InBatch(""))) // it joins the batch of the finished job
		}
		var failed error
		for i, answer := range c.NewClient(w.redis).EnqueueAll(ctx, tasks...) {
			if answer.Err != nil && !errors.Is(answer.Err, asynq.ErrTaskIDConflict) {
				failed = errors.Join(failed, fmt.Errorf("then %s: %w", jobs[i].Type, answer.Err))
			}
		}
		return failed
	})
}

// nextJobs returns the jobs that follow a finished job. key is the finished job's idempotency key. If
// an expression fails, the error archives the finished job.
func nextJobs(c *config.Config, done *expression.Done, then []config.Then, key string) (jobs []jobspec.Job, err error) {
	for i, t := range then {
		payload, ok, err := t.Next(done)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", err, asynq.SkipRetry)
		}
		if !ok {
			continue
		}
		// key is in the ID because a later job can have the same ID as the finished job.
		job := jobspec.Job{Type: t.Type, Payload: payload, ID: fmt.Sprintf("%s/then/%d/%.8s", done.ID, i, key)}
		job.Queue = cmp.Or(t.Queue, done.Queue)
		job = job.Fill(jobspec.Options{}, c)
		job.Retention = max(job.Retention, thenRetention)
		jobs = append(jobs, job)
	}
	return jobs, nil
}
