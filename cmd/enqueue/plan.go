package main

import (
	"context"
	"errors"
	"fmt"

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
	fmt.Fprintf(stdio.Out, "jobs   %d, of which none is added\n", d.jobs)
	if d.jobs > 0 {
		fmt.Fprintf(stdio.Out, "first  %s\n", first)
		fmt.Fprintf(stdio.Out, "last   %s\n", last)
	}
	return source.verdict()
}
