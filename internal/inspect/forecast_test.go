package inspect_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/dashboards/metrics"
	"github.com/headgate/headgate/dashboards/page"
	"github.com/headgate/headgate/internal/forecast"
	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/throttle"
)

// TestForecast_Consistent: the page, the status, positions, backlogs, a plan and the metrics have the
// same forecast, and it comes true.
func TestForecast_Consistent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, rdb := redistest.Mini(t)
		ctx, quiet := t.Context(), slog.New(slog.DiscardHandler)
		var last time.Time
		limiter := waitdb.New(throttle.New(rdb, throttle.Options{Logger: quiet}))
		server := start(t, rdb, 10, func(context.Context, *asynq.Task) error {
			last = time.Now()
			return nil
		}, throttle.Limit{Name: "minute", Kind: throttle.FixedWindow, Rate: throttle.PerMinute(100)}, throttle.Limit{Name: "second", Kind: throttle.Funnel, Rate: throttle.PerSecond(10)})
		enqueue(t, rdb, 250)
		time.Sleep(7 * time.Second) // there is a sample each 5 s

		q := inspect.New(limiter)
		f, err := q.Forecast(ctx, forecast.Options{})
		must(t, err)
		foretold, _ := f.Last()
		ends := f.At.Add(foretold.StartsIn)
		said := map[string]time.Time{}
		status, err := q.Status(ctx, false)
		must(t, err)
		said["status"] = status.At.Add(status.ETA.StartsIn)
		for _, l := range status.Limits {
			said["status of "+l.Name] = status.At.Add(l.ETA.StartsIn)
			if l.Waiting == 0 {
				t.Errorf("nothing waits for %s", l.Name)
			}
		}
		for _, b := range f.Backlogs() {
			said["what waits for "+b.Limit] = f.At.Add(b.Last.StartsIn)
		}
		said["the last job"] = lastPlace(t, q, f)
		plan := forecast.Options{}
		must(t, plan.Plan(waitdb.Job{JobID: throttle.JobID{Queue: "default"}}, 1, throttle.Need{Limit: "minute"}, throttle.Need{Limit: "second"}))
		planned, err := q.Forecast(ctx, plan)
		must(t, err)
		_, next := planned.Planned()
		said["a plan"] = planned.At.Add(next.StartsIn - 100*time.Millisecond) // behind the last
		p, err := page.New(page.Options{Limiter: limiter.Limiter, Log: quiet})
		must(t, err)
		said["the page"] = headline(t, p)
		for name, in := range lastRuns(t, metrics.New(server, rdb, metrics.Options{})) {
			said["metrics of "+name] = time.Now().Add(in)
		}
		if len(said) != 10 {
			t.Errorf("%d tell when the last runs: %v", len(said), said)
		}
		for who, at := range said {
			if off := at.Sub(ends).Abs(); off > 1500*time.Millisecond {
				t.Errorf("%s says %s, the forecast %s", who, at, ends)
			}
		}
		time.Sleep(time.Until(ends) + time.Minute)
		if off := last.Sub(ends).Abs(); off > 1500*time.Millisecond {
			t.Errorf("the last ran at %s, and was to run at %s", last, ends)
		}
	})
}

// start runs a server whose jobs need a permit of each of the limits.
func start(t *testing.T, rdb redis.UniversalClient, concurrency int, handle asynq.HandlerFunc, limits ...throttle.Limit) *scheduler.Server {
	t.Helper()
	var needs []throttle.Need
	for _, l := range limits {
		needs = append(needs, throttle.Need{Limit: l.Name})
	}
	rules := scheduler.Rules{Limits: limits, RuleFor: func(context.Context, *asynq.Task) (scheduler.Rule, error) {
		return scheduler.Rule{Needs: needs}, nil
	}}
	server, err := scheduler.NewServer(rdb, rules, asynq.Config{Concurrency: concurrency, LogLevel: asynq.FatalLevel, ShutdownTimeout: time.Second},
		scheduler.WithLogger(slog.New(slog.DiscardHandler)))
	must(t, err)
	must(t, server.Start(handle))
	t.Cleanup(server.Shutdown)
	return server
}

// enqueue adds jobs with the IDs 0, 1, 2 and so on.
func enqueue(t *testing.T, rdb redis.UniversalClient, jobs int) {
	t.Helper()
	for i := range jobs {
		_, err := scheduler.NewClient(rdb).Enqueue(asynq.NewTask("mail", []byte(fmt.Sprint(i))), asynq.TaskID(fmt.Sprint(i)))
		must(t, err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// lastPlace returns when the last waiting job would run, by the positions of all.
func lastPlace(t *testing.T, q *inspect.Queues, f *forecast.Forecast) (last time.Time) {
	for i := range 250 {
		place, waits, err := q.Limiter.Position(t.Context(), throttle.JobID{Queue: "default", ID: fmt.Sprint(i)})
		must(t, err)
		if place = f.Position(place); waits && place.StartsAt.After(last) {
			last = place.StartsAt
		}
	}
	return last
}

// headline returns when the last job would run by the page.
func headline(t *testing.T, p *page.Page) time.Time {
	r := httptest.NewRequest(http.MethodGet, "http://localhost/", nil)
	r.RemoteAddr = "127.0.0.1:4711"
	w := httptest.NewRecorder()
	p.ServeHTTP(w, r)
	text, _ := io.ReadAll(w.Body)
	found := regexp.MustCompile(`The last would run [^<]*<b class="num"><time[^>]*>([\d:]+)</time>`).FindSubmatch(text)
	if found == nil {
		t.Fatalf("%d: no headline in\n%s", w.Code, text)
	}
	clock, err := time.ParseInLocation(time.TimeOnly, string(found[1]), time.Local)
	must(t, err)
	now := time.Now()
	return time.Date(now.Year(), now.Month(), now.Day(), clock.Hour(), clock.Minute(), clock.Second(), 0, time.Local)
}

// lastRuns returns when the last job of each limit would run by the metrics.
func lastRuns(t *testing.T, c prometheus.Collector) map[string]time.Duration {
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	families, err := registry.Gather()
	must(t, err)
	runs := map[string]time.Duration{}
	for _, f := range families {
		if f.GetName() != "headgate_scope_backlog_drain_seconds" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "limit" {
					runs[l.GetValue()] = time.Duration(m.GetGauge().GetValue() * float64(time.Second))
				}
			}
		}
	}
	return runs
}
