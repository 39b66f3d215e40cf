package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/cli"
)

type retryCommand struct {
	ID    string `arg:"" help:"Id of the job."`
	Queue string `placeholder:"NAME" help:"The job of this queue: an id can be in several."`
	confirming
}

// Run implements "worker retry".
func (c *retryCommand) Run(ctx context.Context, g *cli.Globals, stdio cli.IO) error {
	q, err := openQueues(ctx, g)
	if err != nil {
		return err
	}
	defer q.Close()
	job, err := findJob(q, c.ID, c.Queue)
	if err != nil {
		return err
	}
	switch job.State {
	case asynq.TaskStateArchived, asynq.TaskStateRetry, asynq.TaskStateScheduled:
	default:
		return fmt.Errorf("job %s is %s: only one that is archived, scheduled or waits for its next attempt can be run now", c.ID, job.State)
	}
	if err := q.Inspector.RunTask(job.Queue, job.ID); err != nil {
		return err
	}
	one := 1
	did := confirmation{Done: "retried", Jobs: &one, Queue: cli.Text(job.Queue), Job: cli.Text(job.ID)}
	said := c.say(stdio.Out, did, fmt.Sprintf("job %s is in queue %s", job.ID, job.Queue))
	return errors.Join(said, q.Limiter.Note(ctx, did.noted()))
}
