package worker

import (
	"context"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/expression"
	"github.com/headgate/headgate/tasks"
)

// newFeedback tells the limits what the other side says, as far as the config trusts it, and
// what jobs have truly cost, where the config says how to tell.
func (w *Worker) newFeedback() *tasks.Feedback {
	return &tasks.Feedback{
		Told: w.told, Costs: w.costs, Results: asynq.NewInspectorFromRedisClient(w.store), Limiter: w.limiter, Log: w.log,
	}
}

// told is the moment until which an answer shuts the limits of a task, and zero where the
// config does not trust it with them. What is longer than a limit allows is cut.
func (w *Worker) told(_ context.Context, task *asynq.Task, a tasks.Answer) time.Time {
	c, until := w.config.Load(), a.Upstream.Until
	wait := time.Until(until)
	if t := c.Tasks[task.Type()]; len(t.Limits) > 0 && !t.Trusts() {
		if a.Status >= 400 {
			w.log.Info("the other side says when to come back, and shuts no limit until then: the key of none is its host, and the config has no trust: all", "type", task.Type(), "in", wait.Round(time.Second))
		}
		return time.Time{}
	}
	least, longest := c.MaxBlocks(task.Type())
	if least.Name != "" && wait > least.LongestBlock() {
		w.log.Warn("the other side wants to be left alone for longer than a limit allows: it is shut for its max_block", "type", task.Type(),
			"limit", least.Name, "max_block", least.LongestBlock(), "asked", wait.Round(time.Second))
	}
	return until.Add(min(0, longest-wait)) // each limit cuts the rest itself
}

// costs is what a job that is done has truly cost, by limit, where the config says how to
// tell by its result.
func (w *Worker) costs(ctx context.Context, task *asynq.Task, result func() ([]byte, error)) (map[string]int, error) {
	c := w.config.Load()
	if !c.Tasks[task.Type()].Settles() {
		return nil, nil
	}
	got, err := result()
	if err != nil {
		return nil, err
	}
	id, _ := asynq.GetTaskID(ctx)
	queue, _ := asynq.GetQueueName(ctx)
	return c.Costs(&expression.Job{Type: task.Type(), Queue: queue, ID: id, Payload: task.Payload()}, got)
}
