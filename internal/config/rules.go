package config

import (
	"context"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/expression"
	"github.com/headgate/headgate/scheduler"
)

// Rules finds the rule of a task in the config that is current at the time.
func Rules(current func() *Config) scheduler.Rules {
	return func(ctx context.Context, task *asynq.Task) (scheduler.Rule, error) {
		id, _ := asynq.GetTaskID(ctx)
		queue, _ := asynq.GetQueueName(ctx)
		return current().Rule(&expression.Job{Type: task.Type(), Queue: queue, ID: id, Payload: task.Payload()})
	}
}
