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
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/cmd/internal/config"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/tasks"
)

// The runtime's goroutine for signals begins with the first Notify, and must not begin in a bubble.
func init() { signal.Stop(notified()) }

func notified() chan os.Signal {
	c := make(chan os.Signal, 1)
	signal.Notify(c, os.Interrupt)
	return c
}

// A configured worker as a whole, in virtual time: its schedule ticks, what follows on a job
// follows, each call waits for its permit, and it says what it did until it is stopped.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conf, err := config.Parse("run", []byte(`
limits: {api: {kind: funnel, rate: 1/s}}
tasks:
  http:request:
    limits: [{limit: api}]
    then:
      - {type: "http:request", when: 'payload.url endsWith "/tick"', payload: {url: "http://api.example/then"}}
schedules:
  minutely: {cron: "@every 1m", task: "http:request", payload: {url: "http://api.example/tick"}}
`))
		if err != nil {
			t.Fatal(err)
		}
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
			task, err := tasks.NewHTTPRequest(tasks.HTTPRequest{URL: fmt.Sprintf("http://api.example/%d", i)})
			if err == nil {
				_, err = scheduler.NewClient(rdb).Enqueue(task)
			}
			if err != nil {
				t.Fatal(err)
			}
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
			t.Errorf("it tells of %d jobs:\n%s", n, text)
		}
		if err := rdb.Ping(t.Context()).Err(); err != nil {
			t.Errorf("the Redis that it was lent: %v", err)
		}
	})
}
