package main

import (
	"cmp"
	"context"

	"github.com/headgate/headgate/cmd/internal/batch"
	"github.com/headgate/headgate/cmd/internal/cli"
)

type waitCommand struct {
	Batch   string `required:"" placeholder:"NAME" help:"Name of the batch."`
	Results string `placeholder:"FILE" help:"Write the results of the jobs to this file at the end, as \"worker results --json\" prints them, or --csv if its name ends with .csv."`
	Close   bool   `help:"Close the batch first: no more jobs come, except from its own jobs. Its end needs that; \"enqueue\" does it by itself."`
	JSON    bool   `help:"Print a JSON object with the counts of the batch."`
}

func (waitCommand) Help() string {
	return `Waits until all jobs of a batch have ended, and shows the progress on a terminal. Jobs are in a batch if "enqueue" added them with --batch NAME or --wait. Jobs that will be retried, or wait for permits or a time, have not ended. The exit code is 1 if a job has failed for good. The wait can be interrupted and repeated; Redis keeps the counts for 7 days after the end.`
}

func (c *waitCommand) Run(ctx context.Context, conn *connection, stdio cli.IO) error {
	conf, rdb, err := conn.open(ctx)
	if err != nil {
		return err
	}
	if c.Close {
		if err := conf.NewClient(rdb).CloseBatch(ctx, c.Batch); err != nil {
			return err
		}
	}
	wait := batch.Wait{Name: c.Batch, Config: conf, Redis: rdb, Results: c.Results, Command: cli.Worker, Quiet: c.JSON, IO: stdio}
	b, err := wait.Run(ctx)
	if c.JSON && !b.Ended.IsZero() {
		err = cmp.Or(cli.JSON(stdio.Out, b), err)
	}
	return err
}
