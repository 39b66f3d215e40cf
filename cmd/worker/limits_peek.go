package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/headgate/headgate/internal/cli"
	"github.com/headgate/headgate/throttle"
)

type limitsPeek struct {
	Name string `arg:"" help:"Name of the limit."`
	Key  string `arg:"" optional:"" help:"The key, for a limit that counts by key."`
	JSON bool   `help:"Print a JSON object."`
}

func (c *limitsPeek) Run(ctx context.Context, g *cli.Globals, stdio cli.IO) error {
	limiter, done, err := connect(ctx, g)
	if err != nil {
		return err
	}
	defer done()
	if err := needKey(ctx, g, limiter, c.Name, c.Key); err != nil {
		return err
	}
	d, err := limiter.Peek(ctx, c.Name, c.Key)
	if err != nil {
		return badUnlessDown(err)
	}
	if d.Outcome == throttle.NoLimit {
		return errors.New(d.String())
	}
	if c.JSON {
		return cli.JSON(stdio.Out, map[string]any{
			"limit": c.Name, "key": cli.Text(c.Key), "capacity": d.Capacity, "remaining": d.Remaining,
			"retry_after_s": d.RetryAfter.Seconds(), "reset_after_s": d.ResetAfter.Seconds(),
		})
	}
	limit, _, err := find(ctx, limiter, c.Name)
	if err != nil {
		return err
	}
	fmt.Fprintf(stdio.Out, "%d of %d left", d.Remaining, d.Capacity)
	if limit.Paused {
		fmt.Fprintf(stdio.Out, ", more once somebody resumes the limit")
	} else if d.RetryAfter > 0 {
		fmt.Fprintf(stdio.Out, ", the next in %s", in(d.RetryAfter))
	}
	if d.ResetAfter > 0 {
		fmt.Fprintf(stdio.Out, ", all in %s", in(d.ResetAfter))
	}
	fmt.Fprintln(stdio.Out)
	return nil
}
