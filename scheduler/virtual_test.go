package scheduler

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/throttle"
)

// virtual runs a worker in a bubble whose clock jumps.
func virtual(t *testing.T, s settings, f func(t *testing.T, st *stack)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		_, rdb := redistest.Mini(t)
		if s.config.Concurrency == 0 {
			s.config = idle
		}
		s.oneClock = true
		f(t, start(t, rdb, s))
	})
}

func perMinute(n, capacity int) throttle.Limit {
	return throttle.Limit{Name: "api", Kind: throttle.Funnel, Rate: throttle.PerMinute(n), Capacity: capacity}
}

func TestDenied_ComeBackOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	one := idle
	one.Concurrency = 1
	log := perMinute(6, 3)
	log.Kind, log.Capacity = throttle.SlidingLog, 0 // six are called at once
	for _, limit := range []throttle.Limit{perMinute(6, 3), log} {
		t.Run(string(limit.Kind), func(t *testing.T) {
			virtual(t, settings{config: one, limits: []throttle.Limit{limit}}, func(t *testing.T, st *stack) {
				var want []string
				for i := range 60 {
					want = append(want, st.enqueue(NewTask("job", nil, asynq.MaxRetry(0)), asynq.TaskID(fmt.Sprintf("job-%02d", i))))
				}
				time.Sleep(15 * time.Minute)
				st.wantOnce(60)
				st.wantClean()
				var got []string
				for _, r := range st.ran() {
					got = append(got, r.id)
				}
				if strings.Join(got, " ") != strings.Join(want, " ") {
					t.Errorf("order:\n got %v\nwant %v", got, want)
				}
				if len(st.reported) != 0 {
					t.Errorf("the program's error handler heard of denials: %v", st.reported)
				}
				if stats, err := st.tasks.GetQueueInfo("default"); err != nil || stats.FailedTotal != 0 || stats.Archived != 0 {
					t.Errorf("queue: %+v, %v; want no failures and nothing archived", stats, err)
				}
			})
		})
	}
}

// TestDenied_LateJobs: with the polls that a Server sets, each job comes
// some milliseconds after its permit, and where permits are spaced that moves
// the next one's.
func TestDenied_LateJobs(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	for name, limit := range map[string]throttle.Limit{
		"capacity 1":     funnel("api", 50, 1),
		"capacity 2":     funnel("api", 50, 2),
		"capacity 10":    funnel("api", 50, 10),
		"one each 20 ms": {Name: "api", Kind: throttle.SlidingLog, Rate: throttle.Every(20 * time.Millisecond)},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, settings{config: asynq.Config{Concurrency: 4}, limits: []throttle.Limit{limit}}, func(_ *testing.T, st *stack) {
				for range 100 {
					st.enqueue(NewTask("job", nil, asynq.MaxRetry(0)))
				}
				time.Sleep(10 * time.Second)
				st.wantOnce(100)
				st.wantClean()
			})
		})
	}
}

func TestDenied_SpendsNoAttempt(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	tests := []struct {
		name string
		task *asynq.Task
		opts []asynq.Option
	}{
		{"ours without retries", NewTask("job", nil, asynq.MaxRetry(0)), nil},
		{"ours with retries", NewTask("job", nil, asynq.MaxRetry(3)), nil},
		{"plain asynq without retries", asynq.NewTask("job", nil), []asynq.Option{asynq.MaxRetry(0)}},
		{"plain asynq with retries", asynq.NewTask("job", nil), []asynq.Option{asynq.MaxRetry(1)}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			limit := throttle.Limit{Name: "api", Kind: throttle.Funnel, Rate: throttle.Every(10 * time.Minute)}
			virtual(t, settings{limits: []throttle.Limit{limit}}, func(t *testing.T, st *stack) {
				if d, err := st.limiter.Allow(t.Context(), "api", ""); !d.OK() {
					t.Fatal(d, err)
				}
				st.enqueue(test.task, append(test.opts, asynq.TaskID("it"))...)
				time.Sleep(5 * time.Minute)
				if n := len(st.ran()); n != 0 {
					t.Fatalf("ran %d times before its permit", n)
				}
				time.Sleep(20 * time.Minute)
				if runs := st.ran(); len(runs) != 1 {
					t.Fatalf("ran %v, want once", runs)
				}
				if queue, err := st.tasks.GetQueueInfo("default"); err != nil || queue.Archived != 0 || queue.Size != 0 {
					t.Errorf("queue: %+v, %v; want empty", queue, err)
				}
				st.wantClean()
			})
		})
	}
}

func TestFailures_RetriedThenArchived(t *testing.T) {
	fail := func(context.Context, *asynq.Task) error { return errors.New("boom") }
	for _, maxRetry := range []int{0, 1, 4} {
		t.Run(fmt.Sprint(maxRetry), func(t *testing.T) {
			t.Parallel()
			// Every attempt is denied first: the limit has no permit to spare.
			virtual(t, settings{limits: []throttle.Limit{perMinute(1, 1)}, handle: fail, quiet: time.Minute}, func(t *testing.T, st *stack) {
				if d, err := st.limiter.Allow(t.Context(), "api", ""); !d.OK() {
					t.Fatal(d, err)
				}
				id := st.enqueue(NewTask("job", nil, asynq.MaxRetry(maxRetry)))
				time.Sleep(40 * time.Minute)
				if n := len(st.ran()); n != maxRetry+1 {
					t.Errorf("ran %d times, want %d", n, maxRetry+1)
				}
				info := st.info(id)
				if info == nil || info.State != asynq.TaskStateArchived || !strings.HasPrefix(info.LastErr, "boom") {
					t.Errorf("job: %+v, want archived with boom", info)
				}
				if len(st.reported) != maxRetry+1 || st.reported[0].Error()[:4] != "boom" {
					t.Errorf("reported: %v, want boom %d times", st.reported, maxRetry+1)
				}
			})
		})
	}
}

func TestImpossible(t *testing.T) {
	ctx := context.Background()
	slow := throttle.Limit{Name: "api", Kind: throttle.Funnel, Rate: throttle.Every(10 * time.Minute)}
	rule := func(r Rule) func(*asynq.Task) (Rule, error) {
		return func(*asynq.Task) (Rule, error) {
			if r.Needs == nil {
				r.Needs = []throttle.Need{{Limit: "api"}}
			}
			return r, nil
		}
	}
	// A limit of the rules would come back: see TestOutage_LostLimitIsDefined.
	deleted := func(st *stack) {
		st.server.scopes[0].limits.set(nil, true)
		st.must(st.limiter.Delete(ctx, "api"))
	}
	tests := []struct {
		name   string
		rule   func(*asynq.Task) (Rule, error)
		opts   []asynq.Option
		during func(st *stack)
		runs   int
		reason string // of the archived job; "" where it is gone
	}{
		{
			name: "cost above capacity", rule: rule(Rule{Needs: []throttle.Need{{Limit: "api", Cost: 3}}}),
			reason: "cost 3 is above the capacity 1",
		},
		{name: "no such limit", rule: rule(Rule{Needs: []throttle.Need{{Limit: "gone"}}}), reason: "no such limit: gone"},
		{name: "no such limit, run", rule: rule(Rule{Needs: []throttle.Need{{Limit: "gone"}}, OnNoLimit: ActionRun}), runs: 1},
		{
			name: "rule fails", rule: func(*asynq.Task) (Rule, error) { return Rule{}, errors.New("key payload.url: nil") },
			reason: "key payload.url: nil",
		},
		{name: "bad key", rule: rule(Rule{Needs: []throttle.Need{{Limit: "api", Key: "a\nb"}}}), reason: "no control characters"},
		{name: "waits too long", rule: rule(Rule{MaxWait: time.Minute}), reason: "within the time that it may wait"},
		{name: "waits too long, drop", rule: rule(Rule{MaxWait: time.Minute, OnMaxWait: ActionDrop})},
		{name: "waits too long, run", rule: rule(Rule{MaxWait: time.Minute, OnMaxWait: ActionRun}), runs: 1},
		{
			name: "deadline passes first", rule: rule(Rule{}), opts: []asynq.Option{asynq.Deadline(time.Date(2000, 1, 1, 0, 5, 0, 0, time.UTC))},
			reason: "it was to be done by", // no worker takes it until then
			during: func(st *stack) {
				st.must(st.tasks.PauseQueue("default"))
				time.AfterFunc(6*time.Minute, func() { st.must(st.tasks.UnpauseQueue("default")) })
			},
		},
		{name: "timeout is no deadline", rule: rule(Rule{}), opts: []asynq.Option{asynq.Timeout(10 * time.Second)}, runs: 1},
		{
			name: "limit deleted while it waits", rule: rule(Rule{}), reason: "no such limit: api",
			during: deleted,
		},
		{
			name: "limit deleted while it waits, run", rule: rule(Rule{OnNoLimit: ActionRun}), runs: 1,
			during: deleted,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			virtual(t, settings{limits: []throttle.Limit{slow}, rule: test.rule}, func(t *testing.T, st *stack) {
				if d, err := st.limiter.Allow(ctx, "api", ""); !d.OK() {
					t.Fatal(d, err)
				}
				id := st.enqueue(NewTask("job", nil, asynq.MaxRetry(2)), test.opts...)
				time.Sleep(30 * time.Second)
				if test.during != nil {
					test.during(st)
				}
				time.Sleep(20 * time.Minute)
				if n := len(st.ran()); n != test.runs {
					t.Errorf("ran %d times, want %d", n, test.runs)
				}
				info := st.info(id)
				switch {
				case test.reason == "" && info != nil:
					t.Errorf("job: %v %q, want gone", info.State, info.LastErr)
				case test.reason != "" && info == nil:
					t.Errorf("job is gone, want archived with %q", test.reason)
				case test.reason != "" && (info.State != asynq.TaskStateArchived || !strings.Contains(info.LastErr, test.reason)):
					t.Errorf("job: %v %q, want archived with %q", info.State, info.LastErr, test.reason)
				}
				st.wantClean()
			})
		})
	}
}
