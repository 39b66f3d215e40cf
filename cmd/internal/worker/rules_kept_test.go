package worker

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/cmd/internal/config"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/tasks"
)

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
					conf, err := config.Parse("headgate.yaml", []byte(text))
					if err != nil {
						t.Fatal(err)
					}
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
					task, err := tasks.NewHTTPRequest(tasks.HTTPRequest{URL: fmt.Sprintf("http://api.example/%d", i)})
					if err == nil {
						_, err = scheduler.NewClient(rdb).Enqueue(task)
					}
					if err != nil {
						t.Fatal(err)
					}
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
