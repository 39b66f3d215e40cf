package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/headgate/headgate/internal/cli"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/throttle"
)

// plan says when the first and the last job would run, as things stand. It
// adds nothing.
func plan(ctx context.Context, conf *config.Config, source *source, stdio cli.IO) error {
	planner, err := newPlanner(ctx, conf, stdio)
	if err != nil {
		return err
	}
	defer planner.close()
	d := newDemand(planner)
	for l := range source.jobs() {
		rule, err := l.Rule(conf)
		if err == nil {
			err = d.add(ctx, l, rule.Needs)
		}
		if errors.Is(err, throttle.ErrUnavailable) {
			return err
		}
		if err != nil {
			source.bad.add(l, err)
		}
	}
	source.bad.sum()
	first, last, err := d.forecast(ctx)
	if err != nil {
		return err
	}
	if err := (planned{d.jobs, first, last}).print(stdio.Out, source.json); err != nil {
		return err
	}
	return source.verdict()
}

// planned is when jobs would run.
type planned struct {
	jobs        int
	first, last moment
}

func (p planned) print(out io.Writer, asJSON bool) error {
	if asJSON {
		view := map[string]any{"jobs": p.jobs}
		if p.jobs > 0 {
			view["first"], view["last"] = p.first.view(), p.last.view()
		}
		return cli.JSON(out, view)
	}
	lines := [][2]string{{"jobs", fmt.Sprintf("%d, of which none is added", p.jobs)}}
	if p.jobs > 0 {
		lines = append(lines, [2]string{"first", p.first.String()}, [2]string{"last", p.last.String()})
	}
	return cli.Fields(out, lines)
}
