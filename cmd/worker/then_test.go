package main

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/expression"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/scheduler"
)

const thenConfig = `
commands: {a: {run: [echo]}, b: {run: [echo]}, c: {run: [echo]}}
tasks:
  exec:a:
    then:
      - {type: "exec:b", payload: {n: "${result.n}"}}
      - {type: "exec:c", payload: {n: "${result.n + 1}"}}
`

// What follows on a job is kept for as long as the config says of its type, and for ten
// minutes at least.
func TestThenIsKept(t *testing.T) {
	conf, err := config.Parse("then", []byte(`
commands: {a: {run: [echo]}, b: {run: [echo]}, c: {run: [echo]}}
tasks: {"exec:b": {retention: 24h}, "exec:c": {retention: 1s}}
`))
	if err != nil {
		t.Fatal(err)
	}
	_, rdb := redistest.Mini(t)
	w := &worker{store: &store{UniversalClient: rdb}}
	done := &expression.Done{Job: expression.Job{Type: "exec:a", Queue: "default"}}
	for kind, want := range map[string]time.Duration{"exec:b": 24 * time.Hour, "exec:c": 10 * time.Minute} {
		if err := w.enqueueThen(t.Context(), conf, done, config.Then{Type: kind, Payload: map[string]any{}}, kind); err != nil {
			t.Fatal(err)
		}
		job, err := asynq.NewInspectorFromRedisClient(rdb).GetTaskInfo("default", kind)
		if err != nil {
			t.Fatal(err)
		}
		if job.Retention != want {
			t.Errorf("%s is kept for %s, want %s", kind, job.Retention, want)
		}
	}
}

// A job that runs again, because its worker died after it had enqueued what follows
// and before asynq knew that it was done, enqueues nothing a second time: neither
// while what follows waits nor when that is done. A new job of the same ID does.
func TestThenAfterACrash(t *testing.T) {
	for name, again := range map[string]time.Duration{"at once": 0, "when asynq has found out": 90 * time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, rdb := redistest.Mini(t)
				conf, err := config.Parse("then", []byte(thenConfig))
				if err != nil {
					t.Fatal(err)
				}
				w := &worker{store: &store{UniversalClient: rdb}}
				w.config.Store(conf)
				runs := map[string][]string{}
				handle := asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
					runs[task.Type()] = append(runs[task.Type()], string(task.Payload()))
					_, err := task.ResultWriter().Write([]byte(`{"n":1}`))
					return err
				})
				dying := asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
					err := w.goOn(handle).ProcessTask(ctx, task)
					if task.Type() == "exec:a" && len(runs["exec:a"]) == 1 {
						return errors.Join(err, scheduler.RetryAfter(again))
					}
					return err
				})
				log := slog.New(slog.DiscardHandler)
				rules := scheduler.Rules{For: config.RuleIn(w.config.Load)}
				server, err := scheduler.NewServer(rdb, rules, asynq.Config{Concurrency: 1, Logger: asynqLog{log}}, scheduler.WithLogger(log))
				if err != nil {
					t.Fatal(err)
				}
				if err := server.Start(dying); err != nil {
					t.Fatal(err)
				}
				defer server.Shutdown()
				enqueue := func() {
					t.Helper()
					if _, err := scheduler.NewClient(rdb).Enqueue(asynq.NewTask("exec:a", []byte("{}")), asynq.TaskID("its own")); err != nil {
						t.Fatal(err)
					}
					time.Sleep(100 * time.Second)
				}
				enqueue()
				want := map[string][]string{"exec:a": {"{}", "{}"}, "exec:b": {`{"n":1}`}, "exec:c": {`{"n":2}`}}
				if diff := cmp.Diff(want, runs); diff != "" {
					t.Error(diff)
				}
				enqueue()
				want = map[string][]string{"exec:a": {"{}", "{}", "{}"}, "exec:b": {`{"n":1}`, `{"n":1}`}, "exec:c": {`{"n":2}`, `{"n":2}`}}
				if diff := cmp.Diff(want, runs); diff != "" {
					t.Errorf("after a new job of that ID:\n%s", diff)
				}
			})
		})
	}
}
