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

// logJob logs a line for each attempt that ends. What becomes of a job that
// failed is for logFailure to say.
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
	case scheduler.IsPutBack(err), w.stopping.Load() && errors.Is(ctx.Err(), context.Canceled): // by asynq
		return "put back"
	}
	return "failed"
}

// blockUntil is the moment until which an answer shuts the limits of a task, and zero where the
// config does not trust it with them. What is longer than a limit allows is cut.
func (w *Worker) blockUntil(_ context.Context, task *asynq.Task, a tasks.Answer) time.Time {
	c, until := w.config.Load(), a.Upstream.Until
	wait := time.Until(until)
	if t := c.Tasks[task.Type()]; len(t.Limits) > 0 && !t.TrustsRetryAfter() {
		if a.Status >= 400 {
			w.log.Info("the time that an answer says does not count: no limit of the task has the host as its key, and the task has no retry_after_scope: all", "type", task.Type(), "said", wait.Round(time.Second))
		}
		return time.Time{}
	}
	least, longest := c.Tasks[task.Type()].MaxBlocks(c.Limits)
	if least.Name != "" && wait > least.LongestBlock() {
		w.log.Warn("the other side wants to be left alone for longer than a limit allows: it is shut for its max_block", "type", task.Type(),
			"limit", least.Name, "max_block", least.LongestBlock(), "asked", wait.Round(time.Second))
	}
	return until.Add(min(0, longest-wait)) // each limit cuts the rest itself
}

// costs is what a job that is done has truly cost, by limit.
func (w *Worker) costs(ctx context.Context, task *asynq.Task, result func() ([]byte, error)) (map[string]int, error) {
	return w.config.Load().Tasks.Costs(config.JobOf(ctx, task), result)
}

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
		done := &expression.Done{Job: *config.JobOf(ctx, task)}
		info, err := asynq.NewInspectorFromRedisClient(w.redis).GetTaskInfo(done.Queue, done.ID)
		if err != nil {
			return fmt.Errorf("then: the job's own result: %w", err)
		}
		done.Result = info.Result
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
	client := asynq.NewClientFromRedisClient(w.redis)
	var all error
	for _, job := range jobs {
		if _, err := client.EnqueueContext(ctx, job.Task()); err != nil && !errors.Is(err, asynq.ErrTaskIDConflict) {
			all = errors.Join(all, fmt.Errorf("then %s: %w", job.Type, err))
		}
	}
	return all
}
