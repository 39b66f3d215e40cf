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
	Listen string `default:":8080" placeholder:"ADDR" help:"Where to serve it: a port of this machine only, unless there is a host such as 0.0.0.0 before it (default ${default})."`
	Rate   int    `default:"20" placeholder:"N" help:"How many calls it allows in any second (default ${default})."`
}

func (apiCommand) Help() string {
	return `Answers any call, and 429 with Retry-After to those beyond its rate, by its own clock. Each second with calls it prints a line on how many it served and refused. It is an upstream to try limits against: docker compose up runs one.`
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
			api.tell(stdio.Out)
			return nil
		case err := <-served:
			return err
		case <-second.C:
			api.tell(stdio.Out)
		}
	}
}

// limitedAPI allows so many calls in any second, by its own clock, and answers 429 to the
// others, which count, too.
type limitedAPI struct {
	rate int

	mu              sync.Mutex
	arrivals        []time.Time // of the last second
	busiest         int
	served, refused int            // since the last tell
	calls           map[string]int // how often each path was served; not counted if nil
	last            time.Time      // the last call that was served
}

// ServeHTTP takes a call at the moment at which it arrives. Calls of /healthz do not count.
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
		a.refused++
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

// tell writes a line on the calls since the last tell, if there were any.
func (a *limitedAPI) tell(out io.Writer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.served+a.refused > 0 {
		fmt.Fprintf(out, "%s served %d, refused %d; busiest second so far %d of %d\n",
			time.Now().UTC().Format(time.TimeOnly), a.served, a.refused, a.busiest, a.rate)
	}
	a.served, a.refused = 0, 0
}
