package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

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
	fmt.Fprintf(stdio.Out, "job %s is in queue %s\n", job.ID, job.Queue)
	return nil
}

// queues is asynq's view of Redis.
type queues struct {
	rdb       redis.UniversalClient
	inspector *asynq.Inspector
}

func connectQueues(ctx context.Context, g *cli.Globals) (*queues, error) {
	c, err := g.Load()
	if err != nil {
		return nil, err
	}
	rdb, err := cli.Connect(ctx, c)
	if err != nil {
		return nil, err
	}
	return &queues{rdb, asynq.NewInspectorFromRedisClient(rdb)}, nil
}

func (q *queues) close() { _ = q.rdb.Close() }

// job finds a job in whatever queue it is.
func (q *queues) job(id string) (*asynq.TaskInfo, error) {
	names, err := q.inspector.Queues()
	if err != nil {
		return nil, err
	}
	for _, queue := range names {
		job, err := q.inspector.GetTaskInfo(queue, id)
		if err == nil {
			return job, nil
		}
		if !errors.Is(err, asynq.ErrTaskNotFound) && !errors.Is(err, asynq.ErrQueueNotFound) {
			return nil, err
		}
	}
	return nil, fmt.Errorf("there is no job %s", id)
}

// retry brings a job back to its queue.
func (q *queues) retry(_ context.Context, job *asynq.TaskInfo) error {
	return q.inspector.RunTask(job.Queue, job.ID)
}
