package worker

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/cmd/internal/config"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/tasks"
	"github.com/headgate/headgate/throttle"
)

// Jobs that are rejected before any call spend no permits.
func TestJobs_WithoutCall_TakeNoPermits(t *testing.T) {
	jobs := []*asynq.Task{
		asynq.NewTask(tasks.TypeHTTPRequest, []byte(`{"url":"http://10.1.2.3/NUMBER"}`)),
		asynq.NewTask(tasks.TypeHTTPRequest, []byte(`{"uri":"https://example.com/"}`)),
		asynq.NewTask(tasks.PrefixExec+"say", []byte(`[]`)),
	}
	synctest.Test(t, func(t *testing.T) {
		conf, err := config.Parse("headgate.yaml", []byte(`
limits:
  daily: {kind: fixed_window, rate: 2000/day}
tasks:
  http:request: {limits: [{limit: daily}]}
  exec:say: {limits: [{limit: daily}]}
commands: {say: {run: [echo]}}
`))
		if err != nil {
			t.Fatal(err)
		}
		w, _ := upstreamWorker(t, conf, nil)
		limiter := throttle.New(w.options.Redis, throttle.Options{})
		for i := range 20 {
			for _, job := range jobs {
				payload := strings.Replace(string(job.Payload()), "NUMBER", fmt.Sprint(i), 1)
				if _, err := scheduler.NewClient(w.options.Redis).Enqueue(asynq.NewTask(job.Type(), []byte(payload))); err != nil {
					t.Fatal(err)
				}
			}
		}
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if d, err := limiter.AllowN(t.Context(), "daily", "", 0); err != nil || d.Remaining != 2000 {
			t.Errorf("%d of 2000 permits are left, %v: want all", d.Remaining, err)
		}
		if queue, err := asynq.NewInspectorFromRedisClient(w.options.Redis).GetQueueInfo("default"); err != nil || queue.Archived != 60 {
			t.Errorf("%+v, %v: want 60 archived jobs", queue, err)
		}
		if d, err := limiter.AllowN(t.Context(), "daily", "", 2000); err != nil || !d.OK() {
			t.Fatal(d, err)
		}
		if _, err := scheduler.NewClient(w.options.Redis).Enqueue(jobs[1]); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if queue, err := asynq.NewInspectorFromRedisClient(w.options.Redis).GetQueueInfo("default"); err != nil || queue.Archived != 61 {
			t.Errorf("%+v, %v: want a malformed job archived although no permit is left", queue, err)
		}
	})
}

// A call that cannot connect gives back what it took of quotas, and is tried no faster than the
// funnel lets calls through. What left its worker counts, whatever comes of it.
func TestJobs_WithoutConnection_GiveBackQuotas(t *testing.T) {
	for _, tt := range []struct {
		name  string
		err   error
		sent  bool
		daily int // permits left after ten attempts
	}{
		{"no connection", errors.New("connection refused"), false, 2000},
		{"not public", &tasks.AddressError{}, false, 2000},
		{"a connection that broke off", errors.New("EOF"), true, 1990},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				conf, err := config.Parse("headgate.yaml", []byte(`
limits:
  daily: {kind: fixed_window, rate: 2000/day}
  host:  {kind: funnel, rate: 1/s}
tasks:
  http:request: {max_retry: 0, limits: [{limit: daily}, {limit: host, key: host(payload.url)}]}
`))
				if err != nil {
					t.Fatal(err)
				}
				var attempts []time.Time
				w, _ := upstreamWorker(t, conf, roundTrip(func(r *http.Request) (*http.Response, error) {
					attempts = append(attempts, time.Now())
					trace := httptrace.ContextClientTrace(r.Context())
					trace.GetConn("api.example:80")
					if tt.sent {
						trace.GotConn(httptrace.GotConnInfo{})
					}
					return nil, tt.err
				}))
				for range 10 {
					task, err := tasks.NewHTTPRequest(tasks.HTTPRequest{URL: "http://api.example/"}, asynq.MaxRetry(0))
					if err != nil {
						t.Fatal(err)
					}
					if _, err := scheduler.NewClient(w.options.Redis).Enqueue(task); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(30 * time.Second)
				synctest.Wait()
				d, err := throttle.New(w.options.Redis, throttle.Options{}).AllowN(t.Context(), "daily", "", 0)
				if err != nil || d.Remaining != tt.daily || len(attempts) != 10 {
					t.Errorf("%d permits are left after %d attempts, %v: want %d", d.Remaining, len(attempts), err, tt.daily)
				}
				_, archivedAtOnce := errors.AsType[*tasks.AddressError](tt.err)
				if took := attempts[len(attempts)-1].Sub(attempts[0]); !archivedAtOnce && took < 8*time.Second {
					t.Errorf("ten attempts in %s, want no more than one a second", took)
				}
			})
		})
	}
}
