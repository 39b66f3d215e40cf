package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/headgate/headgate/cmd/internal/cli"
	"github.com/headgate/headgate/cmd/internal/config"
)

type healthCommand struct {
	Address string `arg:"" default:":9090" help:"Address of the worker, as in \"worker run --listen\" (default ${default})."`
	Ready   bool   `help:"Check readiness: Redis answers and accepts writes, and the config has no errors."`
	pageToken
}

func (healthCommand) Help() string {
	return `Requests /healthz of a worker, or /readyz with --ready, and prints the answer. The exit code is 0 only if the answer is 200. It is for health checks in containers without a shell or curl. --ready sends the page's token, from the flag, the environment or the config.`
}

// healthTimeout is how long worker health waits for a slow worker. Then it ends with exit code 1.
const healthTimeout = 10 * time.Second

func (c *healthCommand) Run(ctx context.Context, g *cli.Globals, stdio cli.IO) error {
	address, err := config.ListenAddress(strings.TrimPrefix(c.Address, "http://"))
	if err != nil || address == "" {
		return cli.Usagef("address %q: want HOST:PORT or :PORT, such as :9090", c.Address)
	}
	path := "/healthz"
	if c.Ready {
		path = "/readyz"
	}
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		return cli.Usagef("address %q: %w", c.Address, err)
	}
	if c.Ready {
		// A config with errors is ignored, because the worker reports them.
		var p config.Page
		if conf, err := g.Load(); err == nil && len(conf.MachineErrors) == 0 {
			p = conf.Page
		}
		req.Header.Set("Authorization", "Bearer "+string(c.over(p).Token))
	}
	resp, err := http.DefaultTransport.RoundTrip(req) // follows no redirect
	if err != nil {
		return fmt.Errorf("no worker answers at %s: %w", address, err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 1000))
	answer := strings.TrimSpace(string(text))
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s%s: %d: %s", address, path, resp.StatusCode, answer)
	}
	fmt.Fprintln(stdio.Out, answer)
	return nil
}
