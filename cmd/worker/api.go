package main

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate/headgate/internal/cli"
	"github.com/headgate/headgate/internal/demo"
)

type apiCommand struct {
	Listen string `default:":8080" placeholder:"ADDR" help:"Where to serve it: a port of this machine only, unless there is a host such as 0.0.0.0 before it (default ${default})."`
	Rate   int    `default:"20" placeholder:"N" help:"How many calls it allows in any second (default ${default})."`
}

// Help is the manual of "worker api".
func (apiCommand) Help() string {
	return `Answers any call, and 429 with Retry-After to those beyond its rate, by its own clock. Each second with calls it prints a line on how many it served and refused. It is the other side for a try: docker compose up runs one.`
}

// Run implements "worker api".
func (c *apiCommand) Run(ctx context.Context, stdio cli.IO) error {
	if c.Rate < 1 {
		return cli.Usagef("--rate %d: want at least 1", c.Rate)
	}
	l, err := listen(ctx, c.Listen)
	if err != nil {
		return err
	}
	if l == nil {
		return cli.Usagef("--listen: want HOST:PORT or :PORT, such as :8080")
	}
	upstream := demo.NewUpstream(c.Rate)
	l.server = newServer(upstream)
	served := make(chan error, 1)
	go func() { served <- l.server.Serve(l.Listener) }()
	fmt.Fprintf(stdio.Out, "an API that allows %d calls a second is at http://%s\n", c.Rate, l.Addr())
	second := time.NewTicker(time.Second)
	defer second.Stop()
	for {
		select {
		case <-ctx.Done():
			l.close()
			upstream.Tell(stdio.Out)
			return nil
		case err := <-served:
			return err
		case <-second.C:
			upstream.Tell(stdio.Out)
		}
	}
}
