package demo

import (
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
