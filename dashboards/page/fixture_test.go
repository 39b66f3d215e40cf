package page_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/dashboards/page"
	"github.com/headgate/headgate/internal/testutil/proctest"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/throttle"
)

// fixture is a scope with limits of several kinds, on a Redis of its own.
type fixture struct {
	t       *testing.T
	rdb     redis.UniversalClient
	limiter *waitdb.DB
	client  *scheduler.Client
	options page.Options
}

var quiet = slog.New(slog.DiscardHandler)

func newFixture(t *testing.T, rdb redis.UniversalClient) *fixture {
	w := &fixture{
		t: t, rdb: rdb, client: scheduler.NewClient(rdb),
		limiter: waitdb.New(throttle.New(rdb, throttle.Options{Scope: "crawl", Logger: quiet})),
	}
	w.must(w.limiter.Define(t.Context(),
		throttle.Limit{Name: "host", Kind: throttle.Funnel, Rate: throttle.Rate{N: 1, Per: 2 * time.Second}},
		throttle.Limit{Name: "everyone", Kind: throttle.TokenBucket, Rate: throttle.PerSecond(100), Capacity: 10},
		throttle.Limit{Name: "api-daily", Kind: throttle.FixedWindow, Rate: throttle.PerDay(2000), Zone: "America/New_York"},
		throttle.Limit{Name: "mail", Kind: throttle.SlidingLog, Rate: throttle.PerSecond(10)},
		throttle.Limit{Name: "slots", Kind: throttle.Concurrency, Capacity: 4},
	))
	w.options = page.Options{
		Limiter: w.limiter.Limiter, Log: quiet,
		KeyOf: func(limit string) (string, bool) { return map[string]string{"host": "host(payload.url)"}[limit], true },
	}
	return w
}

func (w *fixture) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// page returns a page of the scope.
func (w *fixture) page() *page.Page {
	w.t.Helper()
	p, err := page.New(w.options)
	w.must(err)
	return p
}

// serve serves the page, and returns its address.
func (w *fixture) serve() string {
	w.t.Helper()
	p := w.page()
	server := httptest.NewServer(p)
	w.t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server.URL
}

// enqueue adds a job with a limit and a key.
func (w *fixture) enqueue(id, limit, key string) {
	w.t.Helper()
	payload := fmt.Sprintf(`{"limit":%q,"key":%q,"url":"https://%s/page","headers":{"Authorization":"Bearer sesame"}}`, limit, key, key)
	_, err := w.client.Enqueue(asynq.NewTask("crawl", []byte(payload), asynq.TaskID(id), asynq.MaxRetry(3)))
	w.must(err)
}

// wait makes a job wait in its lane, without a worker.
func (w *fixture) wait(id string, needs ...throttle.Need) {
	w.t.Helper()
	_, err := w.limiter.Acquire(w.t.Context(), waitdb.Job{JobID: throttle.JobID{Queue: "default", ID: id}}, needs...)
	w.must(err)
}

// run starts a worker that runs until the test ends or stop is called.
func (w *fixture) run(handle func(ctx context.Context, limit, key string) error) (stop func()) {
	w.t.Helper()
	parse := func(task *asynq.Task) (limit, key string, err error) {
		_, err = fmt.Sscanf(string(task.Payload()), `{"limit":%q,"key":%q`, &limit, &key)
		return limit, key, err
	}
	rules := scheduler.Rules{RuleFor: func(_ context.Context, task *asynq.Task) (scheduler.Rule, error) {
		limit, key, err := parse(task)
		if limit == "host" {
			return scheduler.Rule{Needs: []throttle.Need{{Limit: "host", Key: key}, {Limit: "everyone"}}}, err
		}
		return scheduler.Rule{Needs: []throttle.Need{{Limit: limit}}}, err
	}}
	server, err := scheduler.NewServer(w.rdb, rules, asynq.Config{Concurrency: 20, LogLevel: asynq.FatalLevel, ShutdownTimeout: 100 * time.Millisecond},
		scheduler.WithLimiter(w.limiter.Limiter), scheduler.WithLogger(quiet))
	w.must(err)
	w.must(server.Start(asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		limit, key, err := parse(task)
		if err != nil {
			return err
		}
		return handle(ctx, limit, key)
	})))
	var once sync.Once
	stop = func() { once.Do(server.Shutdown) }
	w.t.Cleanup(stop)
	return stop
}

// allWait returns when that many jobs wait.
func (w *fixture) allWait(jobs int) { w.untilWaiting(func(n int) bool { return n == jobs }) }

// fewerWait returns when fewer jobs wait.
func (w *fixture) fewerWait(jobs int) { w.untilWaiting(func(n int) bool { return n < jobs }) }

func (w *fixture) untilWaiting(enough func(jobs int) bool) {
	w.t.Helper()
	proctest.Until(w.t, "such number of waiting jobs", func() (bool, any) {
		waiting, _, _, err := w.limiter.BacklogStats(w.t.Context())
		w.must(err)
		return enough(waiting), waiting
	})
}

func realFixture(t *testing.T) *fixture { return newFixture(t, redistest.Real(t)) }

func miniFixture(t *testing.T) *fixture {
	_, rdb := redistest.Mini(t)
	return newFixture(t, rdb)
}

// offline returns a client of a Redis that is down.
func offline() redis.UniversalClient {
	return redis.NewClient(&redis.Options{MaxRetries: -1, Dialer: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("offline")
	}})
}
