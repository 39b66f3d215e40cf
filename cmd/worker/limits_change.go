package main

import (
	"context"
	"fmt"

	"github.com/headgate/headgate/internal/cli"
	"github.com/headgate/headgate/internal/jobspec"
	"github.com/headgate/headgate/scheduler/lanes"
)

type limitsDelete struct {
	Name string `arg:"" help:"Name of the limit."`
	Yes  bool   `help:"Delete it even if jobs wait for it."`
	confirming
}

func (c *limitsDelete) Run(ctx context.Context, g *cli.Globals, stdio cli.IO) error {
	did := confirmation{Done: "deleted", Limit: c.Name}
	return c.change(ctx, g, stdio, did, func(l *lanes.Lanes) error {
		n, err := l.Waiters(ctx, c.Name, 0)
		if err != nil {
			return err
		}
		if n > 0 && !c.Yes {
			return cli.Usagef("limit %s has %s waiting, which are then archived, or what on_no_limit says; add --yes if that is meant", c.Name, jobspec.Count(n))
		}
		return l.Delete(ctx, c.Name)
	})
}

type limitsPause struct {
	Name string `arg:"" help:"Name of the limit."`
	confirming
}

func (c *limitsPause) Run(ctx context.Context, g *cli.Globals, stdio cli.IO) error {
	did := confirmation{Done: "paused", Limit: c.Name}
	return c.change(ctx, g, stdio, did, func(l *lanes.Lanes) error { return l.Pause(ctx, c.Name) })
}

type limitsResume struct {
	Name string `arg:"" help:"Name of the limit."`
	confirming
}

func (c *limitsResume) Run(ctx context.Context, g *cli.Globals, stdio cli.IO) error {
	did := confirmation{Done: "resumed", Limit: c.Name}
	return c.change(ctx, g, stdio, did, func(l *lanes.Lanes) error { return l.Resume(ctx, c.Name) })
}

type limitsReset struct {
	Name string `arg:"" help:"Name of the limit."`
	Key  string `arg:"" optional:"" help:"The key, for a limit that counts by key."`
	confirming
}

func (c *limitsReset) Run(ctx context.Context, g *cli.Globals, stdio cli.IO) error {
	did := confirmation{Done: "reset", Limit: c.Name, Key: cli.Text(c.Key)}
	return c.change(ctx, g, stdio, did, func(l *lanes.Lanes) error {
		if err := needKey(ctx, g, l, c.Name, c.Key); err != nil {
			return err
		}
		return l.Reset(ctx, c.Name, c.Key)
	})
}

// change does one thing to a limit and says so.
func (c confirming) change(ctx context.Context, g *cli.Globals, stdio cli.IO, did confirmation, do func(*lanes.Lanes) error) error {
	limiter, done, err := connect(ctx, g)
	if err != nil {
		return err
	}
	defer done()
	if err := do(limiter); err != nil {
		return badUnlessDown(err)
	}
	text := did.Done + " " + did.Limit
	if did.Key != "" {
		text = fmt.Sprintf("%s %s of %s", did.Done, did.Limit, did.Key)
	}
	return c.say(stdio.Out, did, text)
}
