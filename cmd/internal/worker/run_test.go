package worker

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/testutil/proctest"
	"github.com/headgate/headgate/internal/testutil/redistest"
)

// The runtime's goroutine for signals begins with the first Notify, and must not begin in a bubble.
func init() { signal.Stop(notified()) }

func notified() chan os.Signal {
	c := make(chan os.Signal, 1)
	signal.Notify(c, os.Interrupt)
	return c
}

// A configured worker in virtual time: its schedule ticks, next jobs are enqueued, each call waits for
// its permit, and each attempt is logged.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conf := parse(t, `
limits: {api: {kind: funnel, rate: 1/s}}
tasks:
  http:request:
    limits: [{limit: api}]
    then:
      - {type: "http:request", when: 'payload.url endsWith "/tick"', payload: {url: "http://api.example/then"}}
schedules:
  minutely: {cron: "@every 1m", task: "http:request", payload: {url: "http://api.example/tick"}}
`)
		_, rdb := redistest.Mini(t)
		var calls []string
		var said bytes.Buffer
		last := time.Time{}
		w, err := New(conf, Options{
			Redis: rdb, LogJobs: true, Log: slog.New(slog.NewTextHandler(&said, nil)),
			Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
				now := time.Now().Truncate(time.Microsecond) // finer no meter counts
				if since := now.Sub(last); since < time.Second {
					t.Errorf("%s comes %s after the call before", r.URL, since)
				}
				last, calls = now, append(calls, r.URL.Path)
				return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}, nil
			}),
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithTimeout(t.Context(), 3*time.Minute+30*time.Second)
		defer stop()
		for i := range 3 {
			enqueueCall(t, rdb, fmt.Sprintf("http://api.example/%d", i))
		}
		if err := w.Run(ctx); err != nil {
			t.Error(err)
		}
		want := []string{"/0", "/1", "/2", "/tick", "/then", "/tick", "/then", "/tick", "/then"}
		if !slices.Equal(calls, want) {
			t.Errorf("it called %q, want %q", calls, want)
		}
		text := said.String()
		if n := strings.Count(text, `msg="job ended" outcome=done`); n != len(want) || !strings.Contains(text, `msg="running jobs"`) || !strings.HasSuffix(text, "msg=stopped\n") {
			t.Errorf("it logs %d jobs:\n%s", n, text)
		}
		if err := rdb.Ping(t.Context()).Err(); err != nil {
			t.Errorf("the Redis that it was lent: %v", err)
		}
	})
}

// TestStart_WaitsForRedis: a worker that starts while Redis is down logs that once, is alive and not
// ready, and runs jobs when Redis is there.
func TestStart_WaitsForRedis(t *testing.T) {
	rdb := redistest.Run(t)
	if err := rdb.Stop(); err != nil {
		t.Fatal(err)
	}
	url, _, log := runLogged(t, rdb, limited)
	proctest.Until(t, "line in the log", func() (bool, any) { return strings.Contains(log.String(), "Redis cannot be used: jobs wait"), log })
	if status, text := proctest.Get(t, url+"/healthz"); status != 200 {
		t.Errorf("/healthz: %d %s", status, text)
	}
	if status, text := proctest.Get(t, url+"/readyz"); status != 503 || !strings.HasPrefix(text, "cannot use Redis: it does not answer") {
		t.Errorf("/readyz: %d %s", status, text)
	}
	if status, text := proctest.Get(t, url+"/metrics"); status != 200 || !strings.Contains(text, "headgate_config_applied") {
		t.Errorf("/metrics: %d %s", status, text)
	}
	if err := syscall.Kill(syscall.Getpid(), syscall.SIGHUP); err != nil { // which ends nothing
		t.Fatal(err)
	}
	if err := rdb.Restart(); err != nil {
		t.Fatal(err)
	}
	proctest.Until(t, "ready worker", func() (bool, any) {
		status, text := proctest.Get(t, url+"/readyz")
		return status == 200 && strings.Contains(log.String(), "running jobs"), text
	})
	// A busy machine can make another outage later.
	outage, _, isBack := strings.Cut(log.String(), "Redis is back: jobs go on")
	for line, want := range map[string]int{"level=ERROR": 1, "Redis cannot be used: jobs wait": 1, "level=WARN": 0} {
		if n := strings.Count(outage, line); n != want || !isBack {
			t.Errorf("%q is %d times in the log until Redis is back, want %d:\n%s", line, n, want, log)
		}
	}
}

// TestRule_WithoutRules_KeepsLimits: a worker whose config has no rules runs jobs that wait under
// the limits by which they wait. A config that has
// other rules, or an empty rule for the type, lets them run.
func TestRule_WithoutRules_KeepsLimits(t *testing.T) {
	const limited = `
limits: {api: {kind: funnel, rate: 1/s}, both: {kind: sliding_window, rate: 10/s}}
tasks: {"http:request": {limits: [{limit: api, key: host(payload.url)}, {limit: both, cost: 2}], fairness_key: payload.url, fairness_weight: 2}}
`
	for name, tt := range map[string]struct {
		text string
		kept bool
	}{
		"no config":     {"", true},
		"no tasks":      {"concurrency: 4", true},
		"only crawls":   {"crawl: {agent: test}", true},
		"another rule":  {"commands: {a: {run: [echo]}}\ntasks: {\"exec:a\": {}}", false},
		"an empty rule": {`tasks: {"http:request": {}}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, rdb := redistest.Mini(t)
				var said bytes.Buffer
				var last time.Time
				ran, tooSoon := 0, 0
				run := func(text string, d time.Duration) {
					conf := parse(t, text)
					w, err := New(conf, Options{
						Redis: rdb, Log: slog.New(slog.NewTextHandler(&said, nil)),
						Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
							now := time.Now().Truncate(time.Microsecond)
							if now.Sub(last) < time.Second {
								tooSoon++
							}
							last, ran = now, ran+1
							return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}, nil
						}),
					})
					if err != nil {
						t.Fatal(err)
					}
					ctx, stop := context.WithTimeout(t.Context(), d)
					defer stop()
					if err := w.Run(ctx); err != nil {
						t.Error(err)
					}
				}
				for i := range 40 {
					enqueueCall(t, rdb, fmt.Sprintf("http://api.example/%d", i))
				}
				run(limited, 10*time.Second)
				if ran < 9 || ran > 11 || tooSoon > 0 {
					t.Fatalf("%d jobs ran, %d too soon; want one a second", ran, tooSoon)
				}
				run(tt.text, 20*time.Second)
				if kept := ran < 35; kept != tt.kept || (tooSoon == 0) != tt.kept {
					t.Errorf("%d of 40 jobs ran in 30 s, %d too soon; want them limited: %v", ran, tooSoon, tt.kept)
				}
				if n := strings.Count(said.String(), "the config has no rules"); n != map[bool]int{true: 1}[tt.kept] {
					t.Errorf("warned %d times:\n%s", n, said.String())
				}
				run(tt.text, 20*time.Second)
				if ran != 40 {
					t.Errorf("%d jobs ran, want all 40", ran)
				}
			})
		})
	}
}
