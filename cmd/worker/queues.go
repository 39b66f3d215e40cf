package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/headgate/headgate/cmd/internal/cli"
	"github.com/headgate/headgate/internal/display"
	"github.com/headgate/headgate/internal/inspect"
)

type queuesCommand struct {
	List   queuesList                  `cmd:"" help:"List queues with their job counts."`
	Pause  nameAction[*inspect.Queues] `cmd:"" set:"what=queue" help:"Stop workers from taking new jobs from a queue. Running jobs continue."`
	Resume nameAction[*inspect.Queues] `cmd:"" set:"what=queue" help:"Let workers take jobs from a paused queue again."`
	Delete queuesDelete                `cmd:"" help:"Delete a queue. Enqueuing a job recreates it."`
}

func newQueuesCommand() (c queuesCommand) {
	c.Pause.do = func(q *inspect.Queues, ctx context.Context, name string) (string, error) {
		return "paused queue " + name, q.SetPaused(ctx, name, true)
	}
	c.Resume.do = func(q *inspect.Queues, ctx context.Context, name string) (string, error) {
		return "resumed queue " + name, q.SetPaused(ctx, name, false)
	}
	return c
}

type queuesList struct {
	Shards bool `help:"Show each shard of a queue."`
	JSON   bool `help:"Print a JSON array."`
}

func (queuesList) Help() string {
	return `WAITING jobs wait for permits or have just been granted them. RETRY jobs failed, or their handler put them back. OLDEST is the age of the oldest pending job.`
}

type queueRow struct {
	inspect.QueueStatus
	Oldest cli.Seconds `json:"oldest_pending_s"`
}

func (c *queuesList) Run(ctx context.Context, q *inspect.Queues, stdio cli.IO) error {
	status, err := q.Status(ctx, c.Shards)
	if err != nil {
		return err
	}
	var rows []queueRow
	for _, q := range status.Queues {
		rows = append(rows, queueRow{q, cli.Seconds(q.Latency)})
	}
	return cli.List(stdio.Out, c.JSON, rows, "there are no queues: enqueuing the first job creates one",
		"QUEUE", "PENDING", "WAITING", "ACTIVE", "SCHEDULED", "RETRY", "COMPLETED", "ARCHIVED", "OLDEST", "PAUSED")
}

type queuesDelete struct {
	Name  string `arg:"" help:"Name of the queue."`
	Force bool   `help:"Delete its jobs, too."`
}

func (c *queuesDelete) Run(ctx context.Context, q *inspect.Queues, stdio cli.IO) error {
	queue, err := q.ReadQueue(ctx, c.Name)
	if err != nil {
		return err
	}
	if n := queue.Size; n > 0 && queue.Active == 0 && !c.Force {
		return cli.Usagef("queue %s has %s, which are deleted with it; add --force to confirm", c.Name, display.Count(n, "job"))
	}
	n, err := q.Remove(ctx, c.Name)
	if err != nil && n > 0 {
		return errors.Join(fmt.Errorf("deleted %s of queue %s", display.Count(n, "job"), c.Name), err)
	}
	return confirm(stdio, err, "deleted queue %s, and %s", c.Name, display.Count(n, "job"))
}
