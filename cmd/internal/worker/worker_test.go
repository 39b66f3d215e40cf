package worker

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/cmd/internal/config"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/tasks"
)

// The log line of a failed job names the job's next state.
func TestLogFailure(t *testing.T) {
	for err, want := range map[error]string{asynq.RevokeTask: "job dropped", asynq.SkipRetry: "job archived"} {
		var said bytes.Buffer
		w := &Worker{log: slog.New(slog.NewTextHandler(&said, nil)), handlers: handlers{crawls: &tasks.CrawlHandler{}}}
		w.logFailure(t.Context(), asynq.NewTask("it", nil), fmt.Errorf("no permit: %w", err))
		if !strings.Contains(said.String(), want) || strings.Contains(said.String(), "skip retry") {
			t.Errorf("%v is logged as %s, want %q", err, said.String(), want)
		}
	}
}

// The log has the first of the jobs that are refused for a cause, and the number of the others.
func TestLogFailure_Refused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		handlers, err := newHandlers(parse(t, ""))
		if err != nil {
			t.Fatal(err)
		}
		w := &Worker{log: slog.New(slog.NewTextHandler(&said, nil)), handlers: handlers}
		w.config.Store(parse(t, "tasks: {\"http:request\": {}}"))
		fail := func(typename, payload string) {
			task := asynq.NewTask(typename, []byte(payload))
			_, err := w.rule(t.Context(), task)
			w.logFailure(t.Context(), task, err)
		}
		for i := range 30 {
			fail("http:request", fmt.Sprintf(`{"url":"http://10.0.0.%d/"}`, i+1))
			fail("exec:none", "{}")
		}
		fail("http:request", `{"url":1}`)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		for line, want := range map[string]int{`"job archived"`: 3, "http://10.0.0.1/": 2, "http://10.0.0.2/": 0, `same cause" type=http:request jobs=29 `: 1, `same cause" type=exec:none jobs=29 `: 1} {
			if n := strings.Count(said.String(), line); n != want {
				t.Errorf("%d times %s, want %d", n, line, want)
			}
		}
	})
}

// A job that a stopping worker interrupts goes back to its queue, and has not failed.
func TestLogJob_Stopping_PutBack(t *testing.T) {
	for stopping, want := range map[bool]string{false: "outcome=failed", true: `outcome="put back"`} {
		var said bytes.Buffer
		w := &Worker{log: slog.New(slog.NewTextHandler(&said, nil))}
		w.stopping.Store(stopping)
		ctx, cancel := context.WithCancel(t.Context())
		handler := asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error { cancel(); return ctx.Err() })
		_ = w.logJob(handler).ProcessTask(ctx, asynq.NewTask("it", nil))
		if !strings.Contains(said.String(), want) {
			t.Errorf("stopping %t: %s, want %s", stopping, said.String(), want)
		}
	}
}

func parse(t *testing.T, text string) *config.Config {
	t.Helper()
	c, err := config.Parse("headgate.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// enqueueCall enqueues a call that is not retried.
func enqueueCall(t *testing.T, rdb redis.UniversalClient, url string) {
	t.Helper()
	task, err := tasks.NewHTTPRequest(tasks.HTTPRequest{Method: "GET", URL: url}, asynq.MaxRetry(0))
	if err == nil {
		_, err = scheduler.NewClient(rdb).Enqueue(task)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// run runs a worker until the test ends.
func run(t *testing.T, c *config.Config, o Options) *Worker {
	t.Helper()
	w, err := New(c, o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- w.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the worker ended with %v", err)
		}
	})
	return w
}

// A worker notes which Redis it uses. It does not start if it is stopped meanwhile.
func TestStore_Embedded(t *testing.T) {
	t.Chdir(t.TempDir())
	r := config.Default().Redis
	stopped, stop := context.WithCancel(t.Context())
	stop()
	var notes bytes.Buffer
	w := &Worker{options: Options{Notes: &notes}}
	if _, err := w.open(stopped, r); err == nil {
		t.Fatal("a worker that is stopped while it starts has started")
	}
	end, err := w.open(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	end()
	if want := "worker: no Redis is configured: "; !strings.Contains(notes.String(), want) {
		t.Errorf("want %q in: %s", want, &notes)
	}
}

// TestCrawlOptions_TimesOfType: pages of a crawl have the retention and the timeout of the config.
func TestCrawlOptions_TimesOfType(t *testing.T) {
	var w Worker
	w.config.Store(&config.Config{Tasks: config.Tasks{tasks.TypeCrawlFetch: {Retention: 24 * time.Hour, Timeout: 45 * time.Second}}})
	want := []asynq.Option{asynq.Retention(24 * time.Hour), asynq.Timeout(45 * time.Second)}
	if got := w.crawlOptions(); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
