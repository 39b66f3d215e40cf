package worker

import (
	"context"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/expression"
	"github.com/headgate/headgate/scheduler"
)

// settle charges what a job that is done has truly cost, where the config says how
// to tell by its result. What cannot be told stays at what was taken.
func (w *Worker) settle(next asynq.Handler) asynq.Handler {
	return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		if err := next.ProcessTask(ctx, task); err != nil {
			return err
		}
		rule, ok := w.config.Load().Tasks[task.Type()]
		if !ok || !rule.Settles() {
			return nil
		}
		if err := w.charge(ctx, task); err != nil {
			w.log.Warn("a job counts as what was taken for it: what it has cost could not be told", "type", task.Type(), "error", err)
		}
		return nil
	})
}

func (w *Worker) charge(ctx context.Context, task *asynq.Task) error {
	id, _ := asynq.GetTaskID(ctx)
	queue, _ := asynq.GetQueueName(ctx)
	info, err := asynq.NewInspectorFromRedisClient(w.store).GetTaskInfo(queue, id)
	if err != nil {
		return err
	}
	job := &expression.Job{Type: task.Type(), Queue: queue, ID: id, Payload: task.Payload()}
	costs, err := w.config.Load().Costs(job, info.Result)
	if err != nil {
		return err
	}
	for limit, cost := range costs {
		if err := scheduler.Settle(ctx, limit, cost); err != nil {
			return err
		}
	}
	return nil
}
