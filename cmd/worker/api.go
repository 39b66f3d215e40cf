package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/headgate/headgate/cmd/internal/cli"
	"github.com/headgate/headgate/cmd/internal/config"
	"github.com/headgate/headgate/cmd/internal/worker"
)

type apiCommand struct {
	Listen string `default:":8080" placeholder:"ADDR" help:"Address to serve at (default ${default}). An address without a host listens on localhost."`
	Rate   int    `default:"20" placeholder:"N" help:"Calls allowed in any second (default ${default})."`
}

func (apiCommand) Help() string {
	return `An upstream to try limits against. It answers 429 with Retry-After to calls above its rate, by its own clock, and prints each second how many calls it served and rejected. docker compose up runs one.`
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
	l, err := worker.Listen(ctx, c.Listen)
	if err != nil {
		return err
	}
	api := &limitedAPI{rate: c.Rate}
	server := worker.HTTPServer(api)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	fmt.Fprintf(stdio.Out, "an API that allows %d calls a second is at http://%s\n", c.Rate, l.Addr())
	second := time.NewTicker(time.Second)
	defer second.Stop()
	for {
		select {
		case <-ctx.Done():
			worker.CloseServer(server)
			api.report(stdio.Out)
			return nil
		case err := <-served:
			return err
		case <-second.C:
			api.report(stdio.Out)
		}
	}
}

// limitedAPI allows a number of calls in any second, by its own clock. It answers 429 to other
// calls, which count as well.
type limitedAPI struct {
	rate int

	mu               sync.Mutex
	arrivals         []time.Time // of the last second
	busiest          int
	served, rejected int            // since the last report
	calls            map[string]int // served calls by path; not counted if nil
	last             time.Time      // the last served call
}

// ServeHTTP does not count calls of /healthz.
func (a *limitedAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/healthz" {
		fmt.Fprintln(w, "ok")
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	for len(a.arrivals) > 0 && now.Sub(a.arrivals[0]) >= time.Second {
		a.arrivals = a.arrivals[1:]
	}
	a.arrivals = append(a.arrivals, now)
	a.busiest = max(a.busiest, len(a.arrivals))
	if len(a.arrivals) > a.rate {
		a.rejected++
		w.Header().Set("Retry-After", "1")
		http.Error(w, "too many calls within a second", http.StatusTooManyRequests)
		return
	}
	a.served++
	a.last = now
	if a.calls != nil {
		a.calls[r.URL.Path]++
	}
	fmt.Fprintln(w, "served")
}

// report prints the calls since the last report, if there were any.
func (a *limitedAPI) report(out io.Writer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.served+a.rejected > 0 {
		fmt.Fprintf(out, "%s served %d, rejected %d; busiest second so far %d of %d\n",
			time.Now().UTC().Format(time.TimeOnly), a.served, a.rejected, a.busiest, a.rate)
	}
	a.served, a.rejected = 0, 0
}
