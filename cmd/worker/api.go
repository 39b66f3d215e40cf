package main

import (
	"context"
	"fmt"
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
	return `An upstream to try limits against. It answers 429 with Retry-After to calls above its rate, by its own clock, and prints each second how many calls it served and rejected if that has changed. docker compose up runs one.`
}

func (c *apiCommand) Run(ctx context.Context, stdio cli.IO) error {
	if c.Rate < 1 {
		return cli.Usagef("--rate %d: want at least 1", c.Rate)
	}
	if _, err := config.ListenAddress(c.Listen); err != nil || c.Listen == "" {
		return cli.Usagef("--listen %q: want HOST:PORT or :PORT, such as :8080", c.Listen)
	}
	l, err := worker.Listen(ctx, c.Listen)
	if err != nil {
		return err
	}
	api := &limitedAPI{rate: c.Rate}
	server := worker.HTTPServer(api)
	context.AfterFunc(ctx, func() { worker.CloseServer(server) })
	fmt.Fprintf(stdio.Out, "an API that allows %d calls a second is at http://%s\n", c.Rate, l.Addr())
	go func() {
		shown := api.state()
		for range time.Tick(time.Second) {
			if state := api.state(); state != shown {
				shown = state
				fmt.Fprintln(stdio.Out, time.Now().UTC().Format(time.TimeOnly), state)
			}
		}
	}()
	if err := server.Serve(l); ctx.Err() == nil {
		return err
	}
	return nil
}

// limitedAPI serves at most rate calls in any second, by its own clock. It answers 429 to other
// calls. A rejected call uses up the rate, too.
type limitedAPI struct {
	rate int

	mu               sync.Mutex
	arrivals         []time.Time // times of the calls in the last second, also of rejected ones
	busiest          int         // largest number of calls within a second
	served, rejected int
	calls            map[string]int // served calls by path; not counted if nil
	last             time.Time      // when the last call was served
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

// state returns one line about all calls.
func (a *limitedAPI) state() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return fmt.Sprintf("served %d, rejected %d; busiest second %d of %d", a.served, a.rejected, a.busiest, a.rate)
}

// done returns the number of different paths that were served. It is 0 if calls is nil.
func (a *limitedAPI) done() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.calls)
}
