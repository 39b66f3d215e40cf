package main

import (
	"context"
	"fmt"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/cli"
)

type retryCommand struct {
	ID string `arg:"" help:"Id of the job."`
}

// Run implements "worker retry".
func (c *retryCommand) Run(ctx context.Context, g *cli.Globals, stdio cli.IO) error {
	q, err := connectQueues(ctx, g)
	if err != nil {
		return err
	}
	defer q.close()
	job, err := q.job(c.ID)
	if err != nil {
		return err
	}
	switch job.State {
	case asynq.TaskStateArchived, asynq.TaskStateRetry, asynq.TaskStateScheduled:
	default:
		return fmt.Errorf("job %s is %s: only one that is archived, scheduled or waits for its next attempt can be run now", c.ID, job.State)
	}
	if err := q.retry(ctx, job); err != nil {
		return err
	}
	fmt.Fprintf(stdio.Out, "job %s is in queue %s\n", cli.Foreign(job.ID), cli.Foreign(job.Queue))
	return nil
}
