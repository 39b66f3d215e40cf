package main

import (
	"context"
	"time"

	"github.com/headgate/headgate/internal/cli"
	"github.com/headgate/headgate/internal/demo"
)

type demoCommand struct {
	Jobs   *int          `placeholder:"N" help:"How many calls to make (default 200, and with --watch 2000)."`
	Rate   int           `default:"20" placeholder:"N" help:"How many calls a second the API allows (default ${default})."`
	Margin time.Duration `default:"150ms" placeholder:"DURATION" help:"Margin of the limits: how unevenly calls may arrive that leave at the right moments (default ${default}). With 0s expect a few answers 429."`
	Watch  bool          `help:"Open the live page in a browser while the jobs run."`
	JSON   bool          `help:"Print one JSON object instead of a table."`
}

// Help is the manual of "worker demo".
func (demoCommand) Help() string {
	return `Starts a small API that counts the calls that arrive within any second by its own clock, and answers 429 to those above its limit. Then enqueues jobs that call it, under a limit for all of them and one for each of four accounts, and runs them.

The exit code is 0 only if the API had nothing to refuse and every job ran once. Without --redis it runs on a Redis of its own; in another it uses a queue and limits of its own, and removes them.`
}

// Run implements "worker demo".
func (c *demoCommand) Run(ctx context.Context, g *cli.Globals, stdio cli.IO) error {
	jobs := 200
	if c.Watch {
		jobs = 2000
	}
	assign(&jobs, c.Jobs)
	if jobs < 1 || c.Rate < 1 {
		return cli.Usagef("--jobs %d --rate %d: want at least 1 of each", jobs, c.Rate)
	}
	if c.Margin < 0 || c.Margin >= time.Second || c.Margin%time.Microsecond != 0 {
		return cli.Usagef("--margin %s: want 0s to less than 1s, in whole microseconds", c.Margin)
	}
	options := demo.Options{Jobs: jobs, Rate: c.Rate, Margin: c.Margin, Redis: g.Redis, Progress: stdio.Err}
	if c.Watch {
		options.Watch = watcher(ctx, stdio.Err)
	}
	result, err := demo.Run(ctx, options)
	if err != nil {
		return err
	}
	if c.JSON {
		err = cli.JSON(stdio.Out, result)
	} else {
		err = result.Print(stdio.Out)
	}
	if err == nil && !result.Good() {
		return cli.Failed
	}
	return err
}
