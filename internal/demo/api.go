package demo

import (
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// accounts take turns in the demo's calls, each of which says for which it is.
const (
	accounts      = 4
	accountHeader = "Account"
)

// API is an API to try limits against: it allows so many calls in any second, in
// all and for each account, by its own clock, and answers 429 to the others, whose
// calls count, too.
type API struct {
	perSecond, perAccount int
	total                 int           // jobs that are to come; 0 where neither they nor accounts are known
	done                  chan struct{} // closed when all of them have come

	mu              sync.Mutex
	all             window
	accounts        map[string]*window
	runs            map[string]int // calls that were served, by job
	served, refused int            // since it was told last
	last            time.Time      // the last call that was served
}

// NewAPI returns an API that allows so many calls a second.
func NewAPI(perSecond int) *API { return &API{perSecond: perSecond} }

func newAPI(jobs, perSecond, perAccount int) *API {
	return &API{
		perSecond: perSecond, perAccount: perAccount, total: jobs, done: make(chan struct{}),
		accounts: map[string]*window{}, runs: map[string]int{},
	}
}

// ServeHTTP takes a call at the moment at which it arrives. Calls of /healthz do not count.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/healthz" {
		fmt.Fprintln(w, "ok")
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	all, own := a.all.arrive(now), 0
	if a.total > 0 {
		own = a.account(r.Header.Get(accountHeader)).arrive(now)
	}
	if all > a.perSecond || own > a.perAccount {
		a.refused++
		w.Header().Set("Retry-After", "1")
		http.Error(w, "too many calls within a second", http.StatusTooManyRequests)
		return
	}
	a.served++
	a.last = now
	fmt.Fprintln(w, "served")
	if a.total == 0 {
		return
	}
	job := r.URL.Query().Get("job")
	a.runs[job]++
	if len(a.runs) == a.total && a.runs[job] == 1 {
		close(a.done)
	}
}

func (a *API) account(name string) *window {
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

// Tell writes a line on the calls since it was told last, if there were any.
func (a *API) Tell(out io.Writer) {
	a.mu.Lock()
	served, refused, busiest := a.served, a.refused, a.all.busiest
	a.served, a.refused = 0, 0
	a.mu.Unlock()
	if served+refused > 0 {
		fmt.Fprintf(out, "%s served %d, refused %d; busiest second so far %d of %d\n",
			time.Now().UTC().Format(time.TimeOnly), served, refused, busiest, a.perSecond)
	}
}
