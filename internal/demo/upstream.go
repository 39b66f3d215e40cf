package demo

import (
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// Upstream is an API to try limits against: it allows so many calls in any second,
// by its own clock, and answers 429 to the others, whose calls count, too.
type Upstream struct {
	perSecond int

	mu              sync.Mutex
	calls           window
	served, refused int // since it was told last
}

// NewUpstream returns an API that allows so many calls a second.
func NewUpstream(perSecond int) *Upstream { return &Upstream{perSecond: perSecond} }

// ServeHTTP implements http.Handler. Calls of /healthz do not count.
func (u *Upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/healthz" {
		fmt.Fprintln(w, "ok")
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.calls.arrive(time.Now()) > u.perSecond {
		u.refused++
		w.Header().Set("Retry-After", "1")
		http.Error(w, "too many calls within a second", http.StatusTooManyRequests)
		return
	}
	u.served++
	fmt.Fprintln(w, "served")
}

// Tell writes a line on the calls since it was told last, if there were any.
func (u *Upstream) Tell(out io.Writer) {
	u.mu.Lock()
	served, refused, busiest := u.served, u.refused, u.calls.busiest
	u.served, u.refused = 0, 0
	u.mu.Unlock()
	if served+refused > 0 {
		fmt.Fprintf(out, "%s served %d, refused %d; busiest second so far %d of %d\n",
			time.Now().UTC().Format(time.TimeOnly), served, refused, busiest, u.perSecond)
	}
}
