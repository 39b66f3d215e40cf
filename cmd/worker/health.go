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
	Address string `arg:"" default:":9090" help:"Where the worker listens, as --listen of worker run says (default ${default}); with https:// before it where that has a certificate."`
	Ready   bool   `help:"Ask whether it does its work: Redis answers and takes writes, and the config has no errors."`
	pageSecrets
}

func (healthCommand) Help() string {
	return `Asks /healthz, or with --ready /readyz, of a worker, and prints what it says. The exit code is 0 only if that is ok. It is for health checks where there is no shell and no curl, as in a container. With --ready it shows the token of the page, or its user and password, from the flags, the environment or the config. The certificate of a worker on this machine is taken as it is: it bears the name that browsers use.`
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
	// Nobody stands between two programs of one machine.
	transport.TLSClientConfig = &tls.Config{InsecureSkipVerify: worker.OfThisMachine(address)}
	resp, err := transport.RoundTrip(req) // it follows nothing
	if err != nil {
		return fmt.Errorf("no worker answers at %s: %w", address, err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 1000))
	says := strings.TrimSpace(string(text))
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s%s: %d: %s", address, path, resp.StatusCode, says)
	}
	fmt.Fprintln(stdio.Out, says)
	return nil
}

// authorize shows who asks, if there is anything to show. A config with errors is what
// the worker tells of, and no reason not to ask.
func (c *healthCommand) authorize(req *http.Request, g *cli.Globals) {
	var p config.Page
	if conf, err := g.Load(); err == nil && len(conf.Machine) == 0 {
		p = conf.Page
	}
	switch p = c.over(p); {
	case p.Token != "":
		req.Header.Set("Authorization", "Bearer "+string(p.Token))
	case p.User != "":
		req.SetBasicAuth(p.User, string(p.Password))
	}
}
