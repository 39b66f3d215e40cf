package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/cli"
	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/internal/jobspec"
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

// Help is the manual of "worker queues list".
func (queuesList) Help() string {
	return `WAITING are the jobs that wait for permits or are called, RETRY those that failed or were put back by their handler. OLDEST is how long the oldest pending job is in the queue.`
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

// Run implements "worker queues list".
func (c *queuesList) Run(ctx context.Context, g *cli.Globals, stdio cli.IO) error {
	q, err := openQueues(ctx, g)
	if err != nil {
		return err
	}
	defer q.Close()
	infos, err := q.Infos(ctx, "")
	if err != nil {
		return err
	}
	found := []queueRow{}
	var rows [][]string
	for _, i := range infos {
		r := queueRow{cli.Text(i.Queue), i.Pending, i.Waiting, i.Active, i.Scheduled, i.Retry, i.Completed, i.Archived, i.Paused, i.Latency.Seconds()}
		found = append(found, r)
		cells := []string{i.Queue}
		for _, n := range []int{r.Pending, r.Waiting, r.Active, r.Scheduled, r.Retry, r.Completed, r.Archived} {
			cells = append(cells, fmt.Sprint(n))
		}
		oldest, paused := "-", "-"
		if i.Pending > 0 {
			oldest = i.Latency.Round(time.Second).String()
		}
		if i.Paused {
			paused = "yes"
		}
		rows = append(rows, append(cells, oldest, paused))
	}
	if c.JSON {
		return cli.JSON(stdio.Out, found)
	}
	if len(rows) == 0 {
		_, err := fmt.Fprintln(stdio.Out, "there are no queues: the first job that is enqueued makes one")
		return err
	}
	return cli.Table(stdio.Out, []string{"QUEUE", "PENDING", "WAITING", "ACTIVE", "SCHEDULED", "RETRY", "COMPLETED", "ARCHIVED", "OLDEST", "PAUSED"}, rows)
}

type ofQueue struct {
	Name string `arg:"" help:"Name of the queue."`
	confirming
}

// change does one thing to a queue and says so, unless nothing was done.
func (c ofQueue) change(ctx context.Context, g *cli.Globals, stdio cli.IO, do func(*inspect.Queues, *confirmation) (said string, err error)) error {
	q, err := openQueues(ctx, g)
	if err != nil {
		return err
	}
	defer q.Close()
	did := confirmation{Queue: cli.Text(c.Name)}
	said, err := do(q, &did)
	if did.Done == "" {
		return err
	}
	return errors.Join(c.say(stdio.Out, did, said), err)
}

type queuesPause struct{ ofQueue }

// Run implements "worker queues pause".
func (c *queuesPause) Run(ctx context.Context, g *cli.Globals, stdio cli.IO) error {
	return c.toggle(ctx, g, stdio, "paused", (*inspect.Queues).Pause)
}

type queuesResume struct{ ofQueue }

// Run implements "worker queues resume".
func (c *queuesResume) Run(ctx context.Context, g *cli.Globals, stdio cli.IO) error {
	return c.toggle(ctx, g, stdio, "resumed", (*inspect.Queues).Resume)
}

func (c ofQueue) toggle(ctx context.Context, g *cli.Globals, stdio cli.IO, done string, do func(*inspect.Queues, context.Context, string) error) error {
	return c.change(ctx, g, stdio, func(q *inspect.Queues, did *confirmation) (string, error) {
		if err := do(q, ctx, c.Name); err != nil {
			return "", err
		}
		did.Done = done
		return done + " queue " + c.Name, nil
	})
}

type queuesPurge struct {
	ofQueue
	State []string `placeholder:"STATE" help:"The jobs in these states: waiting, pending, retry, scheduled, archived or completed, with commas between them."`
	Yes   bool     `help:"Delete them."`
}

// Run implements "worker queues purge".
func (c *queuesPurge) Run(ctx context.Context, g *cli.Globals, stdio cli.IO) error {
	all := strings.Join(inspect.Purged, ", ")
	if len(c.State) == 0 {
		return cli.Usagef("which jobs? want --state with some of %s", all)
	}
	for _, state := range c.State {
		if !slices.Contains(inspect.Purged, state) {
			return cli.Usagef("--state %s: want %s", state, all)
		}
	}
	return c.change(ctx, g, stdio, func(q *inspect.Queues, did *confirmation) (string, error) {
		info, err := q.Info(ctx, c.Name)
		if err != nil {
			return "", err
		}
		if n := info.In(c.State...); n > 0 && !c.Yes {
			return "", cli.Usagef("that is %s; add --yes if they are meant", jobspec.Count(n))
		}
		n, err := q.Purge(ctx, c.Name, c.State...)
		if err != nil && n == 0 {
			return "", err
		}
		did.Done, did.Jobs = inspect.Delete.Done, &n
		return fmt.Sprintf("deleted %s of queue %s", jobspec.Count(n), c.Name), err
	})
}

type queuesDelete struct {
	ofQueue
	Force bool `help:"Delete its jobs, too."`
}

// Run implements "worker queues delete".
func (c *queuesDelete) Run(ctx context.Context, g *cli.Globals, stdio cli.IO) error {
	return c.change(ctx, g, stdio, func(q *inspect.Queues, did *confirmation) (string, error) {
		info, err := q.Info(ctx, c.Name)
		if err != nil {
			return "", err
		}
		if n := info.Size; n > 0 && info.Active == 0 && !c.Force {
			return "", cli.Usagef("queue %s has %s, which are then deleted; add --force if that is meant", c.Name, jobspec.Count(n))
		}
		n, err := q.Remove(ctx, c.Name)
		if err != nil && n == 0 {
			return "", err
		}
		did.Done = inspect.Delete.Done
		if err != nil {
			did.Jobs = &n
			return fmt.Sprintf("deleted %s of queue %s", jobspec.Count(n), c.Name), err
		}
		return fmt.Sprintf("deleted queue %s, and %s", c.Name, jobspec.Count(n)), nil
	})
}
