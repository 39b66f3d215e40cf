package main

import (
	"context"
	"fmt"

	"github.com/headgate/headgate/internal/cli"
)

type jobCommand struct {
	ID    string `arg:"" help:"Id of the job."`
	Queue string `placeholder:"NAME" help:"Only the job of this queue: an id can be in several."`
	JSON  bool   `help:"Print a JSON object for each job of that id."`
}

func (jobCommand) Help() string {
	return `Says all that is known of a job, whatever its state:

  pending    in its queue, and next when a worker is free
  scheduled  not before a time that it was enqueued with
  waiting    for a permit: its lane, its position there, the limit that it waits longest for, and when it is expected to run
  called     its permits are reserved, and it is on its way
  active     running
  retry      failed, or put back by its handler; it comes again
  completed  done, and kept as long as its retention
  archived   given up: it failed too often, or can never run

Of an http:request the answer to the last attempt is shown, if there was one: status, kept headers and body. The last error of a waiting job is the denial.

A job without retention is forgotten when it is done; there is no job of its id then.`
}

func (c *jobCommand) Run(ctx context.Context, g *cli.Globals, stdio cli.IO) error {
	q, err := openQueues(ctx, g)
	if err != nil {
		return err
	}
	defer q.Close()
	jobs, err := q.Named(ctx, c.ID, c.Queue)
	if err != nil {
		return err
	}
	if err := q.Expect(ctx, jobs); err != nil {
		return err
	}
	for i, job := range jobs {
		view := newJobView(job)
		list, crashes, err := q.Attempts(ctx, job.JobID())
		if err != nil {
			return err
		}
		view.tell(list, crashes)
		if c.JSON {
			err = cli.JSON(stdio.Out, view)
		} else {
			if i > 0 {
				fmt.Fprintln(stdio.Out)
			}
			err = cli.Fields(stdio.Out, view.lines())
		}
		if err != nil {
			return err
		}
	}
	return nil
}
