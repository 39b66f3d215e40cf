// Command daily-quota shows that a quota of 2000 calls a day is used to the
// last call and never exceeded, however many jobs there are: the rest of them
// waits for tomorrow, each denied once.
//
//	go run ./examples/daily-quota
//	go run ./examples/daily-quota -quota 2000 -day 10s -days 2
//
// The config is headgate.yaml as a user would write it, but in scaled time: a
// day lasts 4 s and has 500 calls. The API counts its calls by its own clock.
package main

import (
	"context"
	_ "embed"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/examples/internal/example"
	"github.com/headgate/headgate/internal/programs"
)

//go:embed headgate.yaml
var config string

var (
	quota = flag.Int("quota", 500, "calls that the API allows in a day")
	day   = flag.Duration("day", 4*time.Second, "how long a day lasts")
	days  = flag.Int("days", 3, "how many days' calls there are")
)

func main() {
	flag.Parse()
	example.Main(run)
}

func run(ctx context.Context, t *example.Table) error {
	commands, err := programs.Install(ctx)
	if err != nil {
		return err
	}
	defer commands.Close()
	other := &api{quota: *quota, day: *day, served: map[int64]int{}, calls: map[string]int{}}
	server := httptest.NewServer(other)
	defer server.Close()

	// The margin is what a call may take on a busy machine.
	scaled := strings.NewReplacer("2000/day", fmt.Sprintf("%d/%s", *quota, *day), "margin: 1s", fmt.Sprintf("margin: %s", *day/8)).Replace(config)
	if err := commands.Write("headgate.yaml", scaled+"\nhttp: {allow_private: [127.0.0.0/8]} # the API is on this machine\n"); err != nil {
		return err
	}
	var jobs []example.Job
	for i := range *quota * *days {
		call := map[string]any{"url": fmt.Sprintf("%s/items/%d", server.URL, i)}
		jobs = append(jobs, example.Job{Type: "http:request", ID: fmt.Sprint(i), Payload: call})
	}
	fmt.Printf("%d jobs call an API that allows %d calls in a day of %s\n", len(jobs), *quota, *day)
	time.Sleep(other.rest(time.Now())) // the first day begins
	ended, err := example.Run(ctx, commands, jobs, len(jobs))
	if err != nil {
		return err
	}
	other.report(t, len(jobs))
	denials := 0
	for _, e := range ended {
		denials += e.Denials
	}
	t.Denials("denials per job", denials, len(jobs))
	return nil
}

// api serves a quota of calls in each of its days, and answers 429 to the others.
type api struct {
	quota int
	day   time.Duration

	mu      sync.Mutex
	served  map[int64]int  // by day
	calls   map[string]int // that were served, by URL
	refused int
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	today := now.UnixNano() / int64(a.day)
	if a.served[today] == a.quota {
		a.refused++
		w.Header().Set("X-RateLimit-Reset", fmt.Sprintf("%.3f", a.rest(now).Seconds()))
		http.Error(w, "no calls left today", http.StatusTooManyRequests)
		return
	}
	a.served[today]++
	a.calls[r.URL.Path]++
}

// rest is how long the day still lasts.
func (a *api) rest(now time.Time) time.Duration { return a.day - time.Duration(now.UnixNano())%a.day }

func (a *api) report(t *example.Table, jobs int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	dates, left := slices.Sorted(maps.Keys(a.served)), jobs
	for date := dates[0]; date <= dates[len(dates)-1]; date++ {
		served := a.served[date]
		t.Measured(fmt.Sprintf("day %d", date-dates[0]+1), fmt.Sprintf("%d calls", min(left, a.quota)),
			fmt.Sprintf("%d calls, %.1f %% of the quota", served, 100*float64(served)/float64(a.quota)))
		left -= served
	}
	t.None("calls beyond a day's quota", a.refused)
	t.Promised("jobs done", fmt.Sprint(jobs), fmt.Sprint(len(a.calls)), len(a.calls) == jobs)
	t.Once("calls made twice", a.calls)
}
