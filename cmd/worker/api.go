package main

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate/headgate/internal/cli"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/demo"
	"github.com/headgate/headgate/internal/listen"
)

type apiCommand struct {
	Listen string `default:":8080" placeholder:"ADDR" help:"Where to serve it: a port of this machine only, unless there is a host such as 0.0.0.0 before it (default ${default})."`
	Rate   int    `default:"20" placeholder:"N" help:"How many calls it allows in any second (default ${default})."`
}

const closeTimeout = 2 * time.Second

func (apiCommand) Help() string {
	return `Answers any call, and 429 with Retry-After to those beyond its rate, by its own clock. Each second with calls it prints a line on how many it served and refused. It is the other side for a try: docker compose up runs one.`
}

func (c *apiCommand) Run(ctx context.Context, stdio cli.IO) error {
	if c.Rate < 1 {
		return cli.Usagef("--rate %d: want at least 1", c.Rate)
	}
	if c.Listen == "" {
		return cli.Usagef("--listen: want HOST:PORT or :PORT, such as :8080")
	}
	if _, err := config.ListenAddress(c.Listen); err != nil {
		return cli.Usagef("--listen %w", err)
	}
	l, err := listen.At(ctx, c.Listen)
	if err != nil {
		return err
	}
	upstream := demo.NewUpstream(c.Rate)
	server := listen.Server(upstream)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	fmt.Fprintf(stdio.Out, "an API that allows %d calls a second is at http://%s\n", c.Rate, l.Addr())
	second := time.NewTicker(time.Second)
	defer second.Stop()
	for {
		select {
		case <-ctx.Done():
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
			defer cancel()
			if server.Shutdown(ctx) != nil {
				_ = server.Close()
			}
			upstream.Tell(stdio.Out)
			return nil
		case err := <-served:
			return err
		case <-second.C:
			upstream.Tell(stdio.Out)
		}
	}
}
