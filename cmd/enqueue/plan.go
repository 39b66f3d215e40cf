package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/alicebob/miniredis/v2"

	"github.com/headgate/headgate/internal/cli"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/throttle"
)

// plan says when the first and the last job would run, as things stand. It
// adds nothing.
func plan(ctx context.Context, conf *config.Config, source *source, stdio cli.IO) error {
	limiter, done, err := planner(ctx, conf, stdio)
	if err != nil {
		return err
	}
	defer done()
	d := newDemand(limiter)
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
	if d.jobs > 0 {
		fmt.Fprintf(stdio.Out, "jobs   %d, of which none is added\n", d.jobs)
		fmt.Fprintf(stdio.Out, "first  %s\n", first)
		fmt.Fprintf(stdio.Out, "last   %s\n", last)
	}
	return source.verdict()
}

// planner is the limiter to ask. Where no Redis is running it is one that
// starts empty, as that of the next worker would.
func planner(ctx context.Context, conf *config.Config, stdio cli.IO) (*throttle.Redis, func(), error) {
	rdb, err := cli.Connect(ctx, conf)
	if err == nil {
		return cli.Limiter(rdb, conf), func() { _ = rdb.Close() }, nil
	}
	if !errors.Is(err, cli.ErrNoRedis) {
		return nil, nil, err
	}
	fmt.Fprintln(stdio.Err, "enqueue: no worker is running: the times are those of one that starts now")
	empty := miniredis.NewMiniRedis()
	if err := empty.Start(); err != nil {
		return nil, nil, err
	}
	if rdb, err = cli.DialEmbedded(ctx, empty.Addr()); err != nil {
		return nil, nil, err
	}
	done := func() { _ = rdb.Close(); empty.Close() }
	limiter := cli.Limiter(rdb, conf)
	return limiter, done, limiter.Define(ctx, conf.Limits...)
}
