package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/cli"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/dial"
	"github.com/headgate/headgate/internal/worker"
	"github.com/headgate/headgate/scheduler/cron"
)

type schedulesNext struct {
	N    int  `arg:"" optional:"" default:"5" help:"How many ticks of each."`
	JSON bool `help:"Print a JSON array."`
}

// Run implements "worker schedules next". Where no Redis can be asked it does
// not know of pauses.
func (c *schedulesNext) Run(ctx context.Context, g *cli.Globals, stdio cli.IO) error {
	if c.N < 1 {
		return cli.Usagef("n %d: want at least 1", c.N)
	}
	conf, err := g.Load()
	if err != nil {
		return err
	}
	ticks, err := nextTicks(ctx, conf, c.N)
	if err != nil {
		return err
	}
	if c.JSON {
		return cli.JSON(stdio.Out, ticks)
	}
	if len(conf.Entries()) == 0 {
		return printNoSchedules(stdio.Out)
	}
	var rows [][]string
	for _, t := range ticks {
		rows = append(rows, []string{t.Name, t.Zone, t.Tick.Format(tickFormat), t.Tick.Local().Format(tickFormat)})
	}
	return cli.Table(stdio.Out, []string{"NAME", "ZONE", "THERE", "HERE"}, rows)
}

type scheduleTick struct {
	Name string    `json:"name"`
	Zone string    `json:"zone"`
	Tick time.Time `json:"tick"`
}

func nextTicks(ctx context.Context, conf *config.Config, n int) ([]scheduleTick, error) {
	list, err := statuses(ctx, conf, n)
	ticks := []scheduleTick{}
	for _, s := range list {
		for _, tick := range s.Next {
			ticks = append(ticks, scheduleTick{s.Entry.Name, zoneName(s.Entry.Zone), tick})
		}
	}
	slices.SortStableFunc(ticks, func(a, b scheduleTick) int { return a.Tick.Compare(b.Tick) })
	return ticks, err
}

// statuses asks Redis or, where none is configured and no worker runs, the
// config alone.
func statuses(ctx context.Context, conf *config.Config, n int) ([]cron.Status, error) {
	rdb, err := dial.Config(ctx, conf)
	if err == nil {
		defer rdb.Close()
		runner, err := worker.Schedules(rdb, conf, nil)
		if err != nil {
			return nil, err
		}
		return runner.List(ctx, n)
	}
	if !errors.Is(err, dial.ErrNoRedis) {
		return nil, err
	}
	var list []cron.Status
	for _, entry := range conf.Entries() {
		s := cron.Status{Entry: entry}
		for tick := time.Now(); len(s.Next) < n && !entry.Disabled; {
			tick = entry.Next(tick)
			s.Next = append(s.Next, tick)
		}
		list = append(list, s)
	}
	return list, nil
}
