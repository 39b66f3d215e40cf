package inspect_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/forecast"
	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/internal/stats"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/throttle"
)

// pendingFixture has pending jobs, and the rules of a worker that has not started.
type pendingFixture struct {
	*testing.T
	rdb     redis.UniversalClient
	rules   scheduler.Rules
	limiter *waitdb.DB
}

func newPendingWorld(t *testing.T, needs func(id string) []throttle.Need, limits ...throttle.Limit) *pendingFixture {
	_, rdb := redistest.Mini(t)
	return &pendingFixture{t, rdb, scheduler.Rules{Limits: limits, RuleFor: func(_ context.Context, task *asynq.Task) (scheduler.Rule, error) {
		return scheduler.Rule{Needs: needs(string(task.Payload()))}, nil
	}}, waitdb.New(throttle.New(rdb, throttle.Options{Logger: slog.New(slog.DiscardHandler)}))}
}

func (w *pendingFixture) enqueue(jobs int) {
	w.Helper()
	tasks := make([]*asynq.Task, jobs)
	for i := range tasks {
		tasks[i] = asynq.NewTask("mail", []byte(fmt.Sprint(i)), asynq.TaskID(fmt.Sprint(i)))
	}
	for _, answer := range scheduler.NewClient(w.rdb).EnqueueAll(w.Context(), tasks...) {
		must(w.T, answer.Err)
	}
}

// queues returns the queues of a command, with the rules.
func (w *pendingFixture) queues() *inspect.Queues {
	q := inspect.New(w.limiter)
	q.Rules = inspect.Rules{
		ServedQueues: []string{"default"}, Limits: w.rules.Limits,
		RuleFor: func(ctx context.Context, _ throttle.JobID, task *asynq.Task) (stats.Requirements, bool) {
			rule, err := w.rules.RuleFor(ctx, task)
			return stats.Requirements{Needs: rule.Needs}, err == nil
		},
	}
	return q
}

func (w *pendingFixture) start() {
	server, err := scheduler.NewServer(w.rdb, w.rules, asynq.Config{Concurrency: 50, LogLevel: asynq.FatalLevel}, scheduler.WithLogger(slog.New(slog.DiscardHandler)))
	must(w.T, err)
	must(w.T, server.Start(asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return nil })))
	w.Cleanup(server.Shutdown)
}

func (w *pendingFixture) pending() int64 {
	n, err := w.rdb.LLen(w.Context(), asynqdb.Key("default", asynqdb.Pending)).Result()
	must(w.T, err)
	return n
}

// plan returns when the last of more jobs would run.
func (w *pendingFixture) plan(jobs int, needs ...throttle.Need) (last time.Time, f *forecast.Forecast) {
	w.Helper()
	var opts forecast.Options
	must(w.T, opts.Plan(waitdb.Job{JobID: throttle.JobID{Queue: "default"}}, jobs, needs...))
	f, err := w.queues().Forecast(w.Context(), opts)
	must(w.T, err)
	_, e := f.Planned()
	if !e.Known {
		w.Fatalf("the plan is %+v", e)
	}
	return f.At.Add(e.StartsIn), f
}

// TestPending_Counts: a plan behind pending jobs is the same before and after they asked for permits.
// The last planned job must not be the last of its day: a job that starts too late takes its permits
// once more, which would then move the planned job to the next day.
func TestPending_Counts(t *testing.T) {
	day := throttle.Limit{Name: "day", Kind: throttle.FixedWindow, Rate: throttle.PerDay(2000)}
	host := throttle.Limit{Name: "host", Kind: throttle.Funnel, Rate: throttle.PerSecond(1)}
	for name, tt := range map[string]struct {
		jobs  int
		needs func(id string) []throttle.Need
	}{
		"5,000 under a limit of the day": {5_000, func(string) []throttle.Need { return []throttle.Need{{Limit: "day"}} }},
		"few, which are all read":        {150, func(string) []throttle.Need { return []throttle.Need{{Limit: "day"}} }},
		"each of a host of its own":      {1_000, func(id string) []throttle.Need { return []throttle.Need{{Limit: "day"}, {Limit: "host", Key: id}} }},
		"of some hosts": {2_000, func(id string) []throttle.Need {
			return []throttle.Need{{Limit: "day"}, {Limit: "host", Key: id[len(id)-1:]}}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newPendingWorld(t, tt.needs, day, host)
				w.enqueue(tt.jobs)
				before, f := w.plan(1500, throttle.Need{Limit: "day"})
				if f.Pending != tt.jobs || f.WithoutRule != 0 || f.Estimated != (tt.jobs > 200) || f.Jobs != 0 {
					t.Errorf("%d of %d jobs are counted, %d are not, about: %v", f.Pending, tt.jobs, f.WithoutRule, f.Estimated)
				}
				w.start()
				for w.pending() > 0 {
					time.Sleep(time.Second)
				}
				after, _ := w.plan(1500, throttle.Need{Limit: "day"})
				if off := after.Sub(before).Abs(); off > 15*time.Minute {
					t.Errorf("the last is planned for %s, and when all have asked for %s", before, after)
				}
			})
		})
	}
}

// TestPending_Status: pending jobs count in the status, the same with rules and with a sample.
func TestPending_Status(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		needs := []throttle.Need{{Limit: "hour"}}
		w := newPendingWorld(t, func(string) []throttle.Need { return needs }, throttle.Limit{Name: "hour", Kind: throttle.FixedWindow, Rate: throttle.PerHour(100)})
		w.enqueue(1000)
		status, err := w.queues().Status(t.Context(), false)
		must(t, err)
		if in := status.ETA.StartsIn; in < 8*time.Hour || in > 9*time.Hour || status.WithoutRule != 0 || status.Queues[0].Pending != 1000 {
			t.Errorf("without a worker status says %+v, want the last in 8 to 9 h", status)
		}
		blind := inspect.New(w.limiter)
		status, err = blind.Status(t.Context(), false)
		must(t, err)
		if status.WithoutRule != 1000 || status.Waiting+status.Pending > 0 {
			t.Errorf("without rules %d are not counted, and the last runs in %+v; want 1000, and none", status.WithoutRule, status.ETA)
		}
		sample := stats.BacklogSample{At: time.Now()}
		sample.Pending, err = stats.ReadPending(t.Context(), w.rdb, w.limiter, []string{"default"}, func(context.Context, throttle.JobID, *asynq.Task) (stats.Requirements, bool) {
			return stats.Requirements{Needs: needs}, true
		})
		must(t, err)
		if half, err := stats.SampledPending(t.Context(), w.rdb, &sample); err != nil || half.Groups[0].Jobs != 1000 {
			t.Errorf("the sample has %+v, %v; want 1000 jobs", half, err)
		}
		must(t, w.rdb.LTrim(t.Context(), asynqdb.Key("default", asynqdb.Pending), 0, 399).Err())
		if half, err := stats.SampledPending(t.Context(), w.rdb, &sample); err != nil || half.Groups[0].Jobs != 400 {
			t.Errorf("when 400 are left the sample has %+v, %v", half, err)
		}
	})
}

// TestPending_FailingRules: pending jobs whose rule fails, panics or hangs do not block the sample, and
// are uncounted.
func TestPending_FailingRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newPendingWorld(t, func(string) []throttle.Need { return nil })
		hangs := make(chan struct{})
		defer close(hangs)
		w.rules.RuleFor = func(_ context.Context, task *asynq.Task) (scheduler.Rule, error) {
			switch string(task.Payload()) {
			case "1":
				panic("broken")
			case "2":
				return scheduler.Rule{}, errors.New("not now")
			case "3":
				<-hangs
			}
			return scheduler.Rule{}, nil
		}
		server, err := scheduler.NewServer(w.rdb, w.rules, asynq.Config{Concurrency: 1, LogLevel: asynq.FatalLevel}, scheduler.WithLogger(slog.New(slog.DiscardHandler)))
		must(t, err)
		must(t, server.Start(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
			<-ctx.Done()
			return ctx.Err()
		})))
		w.enqueue(1)
		time.Sleep(time.Second)
		tasks := []*asynq.Task{}
		for _, payload := range []string{"1", "2", "3"} {
			tasks = append(tasks, asynq.NewTask("mail", []byte(payload)))
		}
		for _, answer := range scheduler.NewClient(w.rdb).EnqueueAll(t.Context(), tasks...) {
			must(t, answer.Err)
		}
		time.Sleep(30 * time.Second)
		sample, err := stats.ReadBacklogSample(t.Context(), w.rdb, "default")
		must(t, err)
		if sample == nil || time.Since(sample.At) > 25*time.Second || sample.Pending.WithoutRule != 3 {
			t.Errorf("the sample is %+v, want a new one that does not count 3 jobs", sample)
		}
		must(t, w.rdb.Del(t.Context(), asynqdb.Key("default", asynqdb.Pending)).Err()) // the server must not take them
		time.Sleep(time.Minute)
		server.Shutdown()
	})
}
