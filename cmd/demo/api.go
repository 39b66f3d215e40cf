package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// limitedAPI allows a number of calls in any second, by its own clock. It answers 429 to other
// calls, which count as well.
type limitedAPI struct {
	rate int

	mu               sync.Mutex
	arrivals         []time.Time // of the last second
	busiest          int
	served, rejected int
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

// state returns one line about all calls.
func (a *limitedAPI) state() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return fmt.Sprintf("served %d, rejected %d; busiest second %d of %d", a.served, a.rejected, a.busiest, a.rate)
}

// done returns the number of different calls.
func (a *limitedAPI) done() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.calls)
}

// serve serves the API until ctx ends, and prints its state each second if it has changed. An
// address without a host is for this machine only.
func (a *limitedAPI) serve(ctx context.Context, address string, out io.Writer) error {
	if strings.HasPrefix(address, ":") {
		address = "127.0.0.1" + address
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: a, ReadHeaderTimeout: time.Minute}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	fmt.Fprintf(out, "an API that allows %d calls a second is at http://%s\n", a.rate, l.Addr())
	go func() {
		shown := a.state()
		for range time.Tick(time.Second) {
			if state := a.state(); state != shown {
				shown = state
				fmt.Fprintln(out, time.Now().UTC().Format(time.TimeOnly), state)
			}
		}
	}()
	if err := server.Serve(l); ctx.Err() == nil {
		return err
	}
	return nil
}
