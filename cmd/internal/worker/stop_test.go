package worker

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/testutil/redistest"
)

// TestRun_Stop_Bounded: a worker stops within its shutdown_timeout and two seconds, although Redis
// hangs and a job never ends, and also while it starts.
func TestRun_Stop_Bounded(t *testing.T) {
	for name, test := range map[string]struct {
		hangsAt time.Duration // before that Redis answers
		said    string
	}{
		"running":  {10 * time.Second, `msg="stopped, although`},
		"starting": {0, "msg=stopped"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				conf := parse(t, "shutdown_timeout: 8s\nlimits: {api: {kind: funnel, rate: 1/s}}\ntasks: {'http:request': {limits: [{limit: api}]}}\n"+
					"schedules: {each: {cron: '@every 1s', task: 'http:request', payload: {url: 'http://api.example/'}}}")
				_, rdb := redistest.Mini(t)
				released := make(chan struct{})
				var hangs atomic.Bool
				hangs.Store(test.hangsAt == 0)
				rdb.AddHook(redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
					if hangs.Load() {
						<-released // whatever ctx says
					}
					return next(ctx, cmd)
				}))
				var said bytes.Buffer
				w, err := New(conf, Options{
					Redis: rdb, Log: slog.New(slog.NewTextHandler(&said, nil)),
					Transport: roundTrip(func(*http.Request) (*http.Response, error) { <-released; return nil, http.ErrServerClosed }),
				})
				if err != nil {
					t.Fatal(err)
				}
				ctx, stop := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				began := time.Now().Add(30 * time.Second)
				time.AfterFunc(test.hangsAt, func() { hangs.Store(true) })
				time.AfterFunc(30*time.Second, stop)
				go func() { ended <- w.Run(ctx) }()
				if err := <-ended; err != nil {
					t.Errorf("the worker ended with %v, want nil", err)
				}
				if took := time.Since(began); took > conf.ShutdownTimeout+2*time.Second {
					t.Errorf("the stop took %s, want %s at most", took, conf.ShutdownTimeout+2*time.Second)
				}
				if text := said.String(); !strings.Contains(text, `msg="stopping: waiting for running jobs" within=8s`) || !strings.Contains(text, test.said) {
					t.Errorf("it logs, without %s:\n%s", test.said, text)
				}
				hangs.Store(false)
				close(released)
				time.Sleep(time.Minute)
			})
		})
	}
}
