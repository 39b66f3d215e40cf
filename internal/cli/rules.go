package cli

import (
	"context"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/expression"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/throttle"
)

// RuleIn finds the rule of a task in the config that is current at the time.
func RuleIn(current func() *config.Config) func(context.Context, *asynq.Task) (scheduler.Rule, error) {
	return func(ctx context.Context, task *asynq.Task) (scheduler.Rule, error) {
		id, _ := asynq.GetTaskID(ctx)
		queue, _ := asynq.GetQueueName(ctx)
		return current().Rule(&expression.Job{Type: task.Type(), Queue: queue, ID: id, Payload: task.Payload()})
	}
}

// Rule is the rule of a filled job. The error is the one with which a worker
// would archive it.
func (j Job) Rule(c *config.Config) (scheduler.Rule, error) {
	return c.Rule(&expression.Job{Type: j.Type, Queue: j.Queue, ID: j.ID, Payload: j.Payload})
}

// priorities are the limiter's words for those of users.
var priorities = map[string]throttle.Priority{
	"high": throttle.High, "normal": throttle.Normal, "low": throttle.Low,
}
