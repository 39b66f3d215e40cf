package demo

import (
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// api is the other side: a service that allows so many calls in any second, in
// all and for each account, by its own clock, and answers 429 to the others.
type api struct {
	perSecond, perAccount int
	total                 int           // jobs that are to come
	done                  chan struct{} // closed when all of them have come

	mu       sync.Mutex
	all      window
	accounts map[string]*window
	runs     map[string]int // calls that were served, by job
	refused  int
	last     time.Time // the last call that was served
}

func newAPI(jobs, perSecond, perAccount int) *api {
	return &api{
		perSecond: perSecond, perAccount: perAccount, total: jobs, done: make(chan struct{}),
		accounts: map[string]*window{}, runs: map[string]int{},
	}
}

// ServeHTTP takes a call at the moment at which it arrives.
func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	account := a.account(r.Header.Get(accountHeader))
	all, own := a.all.arrive(now), account.arrive(now)
	if all > a.perSecond || own > a.perAccount {
		a.refused++
		http.Error(w, "too many calls within a second", http.StatusTooManyRequests)
		return
	}
	job := r.URL.Query().Get("job")
	a.runs[job]++
	a.last = now
	if len(a.runs) == a.total && a.runs[job] == 1 {
		close(a.done)
	}
}

func (a *api) account(name string) *window {
	if a.accounts[name] == nil {
		a.accounts[name] = &window{}
	}
	return a.accounts[name]
}

// window counts the calls that arrive within any second.
type window struct {
	arrivals []time.Time // of the last second
	busiest  int
}

// arrive returns how many calls have arrived within the second up to now, this
// one included.
func (w *window) arrive(now time.Time) int {
	for len(w.arrivals) > 0 && now.Sub(w.arrivals[0]) >= time.Second {
		w.arrivals = w.arrivals[1:]
	}
	w.arrivals = append(w.arrivals, now)
	w.busiest = max(w.busiest, len(w.arrivals))
	return len(w.arrivals)
}

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
