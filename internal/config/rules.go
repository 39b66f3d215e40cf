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
		rule, err := current().Rule(jobOf(ctx, task))
		if err != nil {
			err = unchanging{err}
		}
		return rule, err
	}
}

// unchanging is an error that comes again with each attempt, since the payload stays as it
// is. To asynq it is asynq.SkipRetry, which archives the job.
type unchanging struct{ error }

// Is tells asynq, which asks whether the error is its own.
func (unchanging) Is(target error) bool { return target == asynq.SkipRetry }

// Unwrap is the error itself.
func (e unchanging) Unwrap() error { return e.error }

// jobOf is what expressions see of the task that runs under a context.
func jobOf(ctx context.Context, task *asynq.Task) *expression.Job {
	queue, id, _ := scheduler.GetJob(ctx)
	return &expression.Job{Type: task.Type(), Queue: queue, ID: id, Payload: task.Payload()}
}
