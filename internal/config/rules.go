package config

import (
	"context"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/expression"
	"github.com/headgate/headgate/scheduler"
)

// RuleIn finds the rule of a task in the config that is current at the time.
func RuleIn(current func() *Config) func(context.Context, *asynq.Task) (scheduler.Rule, error) {
	return func(ctx context.Context, task *asynq.Task) (scheduler.Rule, error) {
		return current().Rule(jobOf(ctx, task))
	}
}

// jobOf is what expressions see of the task that runs under a context.
func jobOf(ctx context.Context, task *asynq.Task) *expression.Job {
	id, _ := asynq.GetTaskID(ctx)
	queue, _ := asynq.GetQueueName(ctx)
	return &expression.Job{Type: task.Type(), Queue: queue, ID: id, Payload: task.Payload()}
}
