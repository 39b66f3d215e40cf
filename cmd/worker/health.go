package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/headgate/headgate/cmd/internal/cli"
	"github.com/headgate/headgate/cmd/internal/config"
	"github.com/headgate/headgate/cmd/internal/worker"
)

type healthCommand struct {
	Address string `arg:"" default:":9090" help:"Address of the worker, as in worker run --listen (default ${default}); with https:// if it has a certificate."`
	Ready   bool   `help:"Check readiness: Redis answers and accepts writes, and the config has no errors."`
	pageToken
}

func (healthCommand) Help() string {
	return `Requests /healthz of a worker, or /readyz with --ready, and prints the answer. The exit code is 0 only if the answer is 200. It is for health checks in containers without a shell or curl. --ready sends the page's token, from the flag, the environment or the config. For a local address the certificate is not verified, because it is issued for the public name.`
}

const healthTimeout = 3 * time.Second

func (c *healthCommand) Run(ctx context.Context, g *cli.Globals, stdio cli.IO) error {
	scheme, given := "http://", strings.TrimPrefix(c.Address, "http://")
	if rest, secure := strings.CutPrefix(c.Address, "https://"); secure {
		scheme, given = "https://", rest
	}
	address, err := config.ListenAddress(given)
	if err != nil || address == "" {
		return cli.Usagef("address %q: want HOST:PORT or :PORT, such as :9090", c.Address)
	}
	path := "/healthz"
	if c.Ready {
		path = "/readyz"
	}
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+address+path, nil)
	if err != nil {
		return cli.Usagef("address %q: %w", c.Address, err)
	}
	if c.Ready {
		c.authorize(req, g)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	// A local connection does not leave the machine, so its certificate is not verified.
	transport.TLSClientConfig = &tls.Config{InsecureSkipVerify: worker.OfThisMachine(address)}
	resp, err := transport.RoundTrip(req) // follows no redirect
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

// authorize adds the page's token, if there is one. It ignores a config with errors, because the
// worker reports these.
func (c *healthCommand) authorize(req *http.Request, g *cli.Globals) {
	var p config.Page
	if conf, err := g.Load(); err == nil && len(conf.MachineErrors) == 0 {
		p = conf.Page
	}
	if p = c.over(p); p.Token != "" {
		req.Header.Set("Authorization", "Bearer "+string(p.Token))
	}
}
