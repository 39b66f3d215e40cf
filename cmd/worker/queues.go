package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/headgate/headgate/cmd/internal/cli"
	"github.com/headgate/headgate/internal/display"
	"github.com/headgate/headgate/internal/duration"
	"github.com/headgate/headgate/internal/inspect"
)

type queuesCommand struct {
	List   queuesList   `cmd:"" help:"List the queues, and how many jobs they have."`
	Pause  queuesPause  `cmd:"" help:"Have no worker take jobs of a queue, until it is resumed. What runs goes on."`
	Resume queuesResume `cmd:"" help:"Have workers take jobs of a paused queue again."`
	Purge  queuesPurge  `cmd:"" help:"Delete all jobs of a queue that are in some states."`
	Delete queuesDelete `cmd:"" help:"Delete a queue. It comes again with the next job that is enqueued there."`
}

type queuesList struct {
	JSON bool `help:"Print a JSON array."`
}

func (queuesList) Help() string {
	return `WAITING are the jobs that wait for permits or are granted, RETRY those that failed or were put back by their handler. OLDEST is how long the oldest pending job is in the queue.`
}

type queueRow struct {
	Queue     cli.Text `json:"queue"`
	Pending   int      `json:"pending"`
	Waiting   int      `json:"waiting"`
	Active    int      `json:"active"`
	Scheduled int      `json:"scheduled"`
	Retry     int      `json:"retry"`
	Completed int      `json:"completed"`
	Archived  int      `json:"archived"`
	Paused    bool     `json:"paused"`
	OldestS   float64  `json:"oldest_pending_s"`
}

func (c *queuesList) Run(ctx context.Context, q *inspect.Queues, stdio cli.IO) error {
	infos, err := q.ReadQueues(ctx, "", nil)
	if err != nil {
		return err
	}
	found := []queueRow{}
	var rows [][]string
	for _, i := range infos {
		r := queueRow{cli.Text(i.Queue), i.Pending, i.Waiting, i.Active, i.Scheduled, i.Retry, i.Completed, i.Archived, i.Paused, i.Latency.Seconds()}
		found = append(found, r)
		cells := append([]string{i.Queue}, numbers(r.Pending, r.Waiting, r.Active, r.Scheduled, r.Retry, r.Completed, r.Archived)...)
		oldest, paused := "-", "-"
		if i.Pending > 0 {
			oldest = duration.Text(i.Latency)
		}
		if i.Paused {
			paused = "yes"
		}
		rows = append(rows, append(cells, oldest, paused))
	}
	titles := []string{"QUEUE", "PENDING", "WAITING", "ACTIVE", "SCHEDULED", "RETRY", "COMPLETED", "ARCHIVED", "OLDEST", "PAUSED"}
	return printList(stdio.Out, c.JSON, found, titles, rows, "there are no queues: the first job that is enqueued makes one")
}

type ofQueue struct {
	Name string `arg:"" help:"Name of the queue."`
	confirming
}

func (c ofQueue) done(stdio cli.IO, done string, err error) error {
	if err != nil {
		return err
	}
	return c.say(stdio.Out, confirmation{Done: done, Queue: cli.Text(c.Name)}, done+" queue "+c.Name)
}

// deleted says how many jobs of the queue are, although an error may have ended it.
func (c ofQueue) deleted(stdio cli.IO, jobs int, err error) error {
	if err != nil && jobs == 0 {
		return err
	}
	did := confirmation{Done: inspect.Delete.Done, Queue: cli.Text(c.Name), Jobs: &jobs}
	return errors.Join(c.say(stdio.Out, did, fmt.Sprintf("deleted %s of queue %s", display.Count(jobs, "job"), c.Name)), err)
}

type queuesPause struct{ ofQueue }

func (c *queuesPause) Run(ctx context.Context, q *inspect.Queues, stdio cli.IO) error {
	return c.done(stdio, "paused", q.Pause(ctx, c.Name))
}

type queuesResume struct{ ofQueue }

func (c *queuesResume) Run(ctx context.Context, q *inspect.Queues, stdio cli.IO) error {
	return c.done(stdio, "resumed", q.Resume(ctx, c.Name))
}

type queuesPurge struct {
	ofQueue
	State []string `placeholder:"STATE" help:"The jobs in these states: waiting, pending, retry, scheduled, archived or completed, with commas between them."`
	Yes   bool     `help:"Delete them."`
}

func (c *queuesPurge) Run(ctx context.Context, conn *connection, stdio cli.IO) error {
	all := strings.Join(inspect.PurgeableStates, ", ")
	if len(c.State) == 0 {
		return cli.Usagef("which jobs? want --state with some of %s", all)
	}
	for _, state := range c.State {
		if !slices.Contains(inspect.PurgeableStates, state) {
			return cli.Usagef("--state %s: want %s", state, all)
		}
	}
	q, err := conn.queues(ctx)
	if err != nil {
		return err
	}
	info, err := q.ReadQueue(ctx, c.Name)
	if err != nil {
		return err
	}
	if n := info.Count(c.State...); n > 0 && !c.Yes {
		return cli.Usagef("that is %s; add --yes if they are meant", display.Count(n, "job"))
	}
	n, err := q.Purge(ctx, c.Name, c.State...)
	return c.deleted(stdio, n, err)
}

type queuesDelete struct {
	ofQueue
	Force bool `help:"Delete its jobs, too."`
}

func (c *queuesDelete) Run(ctx context.Context, q *inspect.Queues, stdio cli.IO) error {
	info, err := q.ReadQueue(ctx, c.Name)
	if err != nil {
		return err
	}
	if n := info.Size; n > 0 && info.Active == 0 && !c.Force {
		return cli.Usagef("queue %s has %s, which are then deleted; add --force if that is meant", c.Name, display.Count(n, "job"))
	}
	n, err := q.Remove(ctx, c.Name)
	if err != nil {
		return c.deleted(stdio, n, err)
	}
	return c.say(stdio.Out, confirmation{Done: inspect.Delete.Done, Queue: cli.Text(c.Name)}, fmt.Sprintf("deleted queue %s, and %s", c.Name, display.Count(n, "job")))
}
