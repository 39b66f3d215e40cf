package worker

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/cmd/internal/config"
	"github.com/headgate/headgate/cmd/internal/expression"
	"github.com/headgate/headgate/cmd/internal/jobspec"
	"github.com/headgate/headgate/internal/testutil/redistest"
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

// A next job is kept for the retention of its type, and for ten minutes at least. If the payload of
// one cannot be computed, none is enqueued.
func TestNextJobs(t *testing.T) {
	conf := parse(t, `
commands: {a: {run: [echo]}, b: {run: [echo]}, c: {run: [echo]}}
tasks:
  exec:a: {then: [{type: "exec:b", payload: {}}, {type: "exec:c", payload: {n: "${result.n + 1}"}}]}
  exec:b: {retention: 24h}
  exec:c: {retention: 1s}
`)
	next := func(result string) ([]jobspec.Job, error) {
		done := &expression.Done{Job: expression.Job{Type: "exec:a", Queue: "default"}, Result: []byte(result)}
		return nextJobs(conf, done, conf.Tasks["exec:a"].Then, "key")
	}
	jobs, err := next(`{"n":1}`)
	if err != nil || len(jobs) != 2 || jobs[0].Retention != 24*time.Hour || jobs[1].Retention != 10*time.Minute {
		t.Errorf("%+v, %v; want two jobs, kept for a day and ten minutes", jobs, err)
	}
	if jobs, err = next(`{"n":"x"}`); !errors.Is(err, asynq.SkipRetry) || len(jobs) > 0 {
		t.Errorf("%d jobs follow, %v", len(jobs), err)
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
				conf := parse(t, thenConfig)
				w := &Worker{redis: rdb}
				w.config.Store(conf)
				runs := map[string][]string{}
				handle := asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
					runs[task.Type()] = append(runs[task.Type()], string(task.Payload()))
					_, err := task.ResultWriter().Write([]byte(`{"n":1}`))
					return err
				})
				dying := asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
					err := w.enqueueNext(handle).ProcessTask(ctx, task)
					if task.Type() == "exec:a" && len(runs["exec:a"]) == 1 {
						return errors.Join(err, scheduler.RetryAfter(again))
					}
					return err
				})
				log := slog.New(slog.DiscardHandler)
				rules := scheduler.Rules{RuleFor: config.RuleIn(w.config.Load)}
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
				synctest.Wait()
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
