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

// A job that comes after its deadline is archived at once, or dropped if its rule
// says so. It uses up no retries, and it keeps its deadline.
func TestDeadline_PassedBeforeDequeue(t *testing.T) {
	tests := []struct {
		name string
		rule Rule
		gone bool
	}{
		{"without limits", Rule{}, false},
		{"under a limit", Rule{Needs: []throttle.Need{{Limit: "api"}}}, false},
		{"that may run beyond it", Rule{Needs: []throttle.Need{{Limit: "api"}}, OnMaxWait: ActionRun}, false},
		{"dropped", Rule{Needs: []throttle.Need{{Limit: "api"}}, OnMaxWait: ActionDrop}, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			rule := func(*asynq.Task) (Rule, error) { return test.rule, nil }
			virtual(t, settings{limits: []throttle.Limit{perMinute(60, 10)}, rule: rule}, func(t *testing.T, st *stack) {
				deadline := time.Now().Add(time.Minute)
				id := st.enqueue(asynq.NewTask("job", nil, asynq.MaxRetry(25)), asynq.Deadline(deadline), asynq.ProcessIn(2*time.Minute))
				time.Sleep(3 * time.Minute)
				info := st.info(id)
				switch {
				case test.gone && info != nil:
					t.Errorf("job: %v %q, want gone", info.State, info.LastErr)
				case !test.gone && (info == nil || info.State != asynq.TaskStateArchived || info.Retried != 0 || !strings.HasPrefix(info.LastErr, "too late: ") || !info.Deadline.Equal(deadline)):
					t.Errorf("job: %+v, want archived as too late, without a retry, with the deadline %v", info, deadline)
				}
				if n := len(st.ran()); n != 0 {
					t.Errorf("ran %d times", n)
				}
				st.mu.Lock()
				defer st.mu.Unlock()
				if len(st.reported) != 1 {
					t.Errorf("reported: %v, want it once", st.reported)
				}
			})
		})
	}
}

// A job whose handler is still at work at the deadline fails as asynq has it, and is
// archived when it comes again.
func TestDeadline_PassesInHandler(t *testing.T) {
	handle := func(context.Context, *asynq.Task) error {
		time.Sleep(2 * time.Minute)
		return nil
	}
	virtual(t, settings{limits: []throttle.Limit{perMinute(60, 10)}, handle: handle}, func(t *testing.T, st *stack) {
		id := st.enqueue(asynq.NewTask("job", nil, asynq.MaxRetry(25)), asynq.Deadline(time.Now().Add(time.Minute)))
		time.Sleep(10 * time.Minute)
		if info := st.info(id); info == nil || info.State != asynq.TaskStateArchived || info.Retried != 1 || !strings.HasPrefix(info.LastErr, "too late: ") {
			t.Errorf("job: %+v, want archived as too late, after one retry", info)
		}
	})
}

// Where nobody knows for how long a job would wait it waits for as long as its rule
// lets it, and is then archived, or dropped, with that reason.
func TestMaxWait_Expires(t *testing.T) {
	for _, action := range []Action{ActionArchive, ActionDrop} {
		t.Run(fmt.Sprint(action), func(t *testing.T) {
			rule := func(*asynq.Task) (Rule, error) {
				return Rule{Needs: []throttle.Need{{Limit: "api"}}, MaxWait: 20 * time.Second, OnMaxWait: action}, nil
			}
			virtual(t, settings{config: quick, limits: []throttle.Limit{perMinute(60, 10)}, rule: rule}, func(t *testing.T, st *stack) {
				st.must(st.limiter.Pause(t.Context(), "api"))
				id := st.enqueue(needing(""))
				time.Sleep(19 * time.Second)
				if info := st.info(id); info == nil || info.State != asynq.TaskStateRetry {
					t.Errorf("after 19 s: %+v, want it to wait", info)
				}
				time.Sleep(1100 * time.Millisecond)
				info := st.info(id)
				archived := info != nil && info.State == asynq.TaskStateArchived && strings.Contains(info.LastErr, "within the time that it may wait")
				if action == ActionArchive && !archived || action == ActionDrop && info != nil {
					t.Errorf("after 20 s: %+v, want it gone, or archived with that reason", info)
				}
				st.wantClean()
				if n := len(st.ran()); n != 0 {
					t.Errorf("ran %d times", n)
				}
			})
		})
	}
}

// Nothing is kept of the deadlines of jobs that have ended.
func TestDeadline_NothingKept(t *testing.T) {
	virtual(t, settings{limits: []throttle.Limit{perMinute(60, 10)}}, func(t *testing.T, st *stack) {
		id := st.enqueue(NewTask("job", nil, asynq.MaxRetry(0), asynq.Deadline(time.Now().Add(-time.Minute))))
		time.Sleep(time.Minute)
		if info := st.info(id); info == nil || info.State != asynq.TaskStateArchived || len(st.ran()) != 0 {
			t.Errorf("job: %+v, ran %v; want it archived without a run", info, st.ran())
		}
		for j := range st.server.inFlight.attempts {
			t.Errorf("what is known of %v is kept", j)
		}
	})
}

// A handler's time begins when it may run, and when it is over asynq gives the job up
// as it always does, though the handler goes on: the worker takes the next.
func TestTimeout_BeginsWithHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, queues := redistest.Mini(t)
		_, limiter := redistest.Mini(t)
		var toLimiter wire
		limiter.AddHook(redistest.Hook(toLimiter.around))
		ended := make(chan time.Duration, 100)
		handle := func(ctx context.Context, _ *asynq.Task) error {
			began := time.Now()
			<-ctx.Done()
			ended <- time.Since(began)
			if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
				t.Errorf("the context ended by %v", ctx.Err())
			}
			time.Sleep(20 * time.Second)
			return nil
		}
		type key struct{}
		config := asynq.Config{Concurrency: 1, TaskCheckInterval: time.Second}
		config.BaseContext = func() context.Context { return context.WithValue(context.Background(), key{}, "the program's") }
		config.IsFailure = func(err error) bool {
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("IsFailure is asked of %v", err)
			}
			return true
		}
		st := start(t, queues, settings{config: config, redis: limiter, limits: []throttle.Limit{perMinute(600, 10)}, handle: func(ctx context.Context, task *asynq.Task) error {
			if ctx.Value(key{}) != "the program's" {
				t.Error("the program's BaseContext is not the handler's")
			}
			return handle(ctx, task)
		}})
		time.Sleep(time.Minute)
		toLimiter.slow.Store(int64(5 * time.Second))
		for i := range 4 {
			st.enqueue(asynq.NewTask("job", nil, asynq.MaxRetry(9*(i%2)), asynq.Timeout(3*time.Second)), numbered("job", i))
		}
		time.Sleep(time.Minute)
		if n := len(ended); n < 4 {
			t.Errorf("%d contexts ended within a minute, want one in 8 to 13 s", n)
		}
		for range len(ended) {
			if took := <-ended; took != 3*time.Second {
				t.Errorf("a context ended after %s, want 3 s", took)
			}
		}
		for i := range 4 {
			info := st.info(fmt.Sprintf("job-%04d", i))
			if info == nil || info.LastErr != "context deadline exceeded" || (info.State == asynq.TaskStateArchived) != (i%2 == 0) {
				t.Errorf("job %d: %+v, want it failed by its timeout", i, info)
			}
		}
		st.server.Shutdown()
		time.Sleep(20 * time.Second)
	})
}

// A job whose time is over before its handler returns is retried by its rule's policy, not by asynq's
// delays.
func TestTimeout_RetryPolicy(t *testing.T) {
	handle := func(ctx context.Context, _ *asynq.Task) error { <-ctx.Done(); time.Sleep(time.Second); return nil }
	rule := func(*asynq.Task) (Rule, error) {
		return Rule{Retry: &RetryPolicy{Backoff: Backoff{Growth: GrowthConstant, Base: time.Hour, Jitter: JitterNone}}}, nil
	}
	virtual(t, settings{config: quick, limits: []throttle.Limit{perMinute(60, 10)}, rule: rule, handle: handle}, func(t *testing.T, st *stack) {
		began := time.Now()
		id := st.enqueue(asynq.NewTask("job", nil, asynq.MaxRetry(1), asynq.Timeout(3*time.Second)))
		time.Sleep(10 * time.Second)
		info := st.info(id)
		if info == nil || info.LastErr != "context deadline exceeded" || info.NextProcessAt.Sub(began).Round(time.Minute) != time.Hour {
			t.Errorf("job: %+v, want it to come again in an hour", info)
		}
	})
}

// What a handler returned in time counts, though the limiter that is to hear of it hangs
// until its time is over: of a refusal, and of what is done after one.
func TestTimeout_EndsWithHandler(t *testing.T) {
	for end, state := range map[error]asynq.TaskState{nil: asynq.TaskStateCompleted, RateLimited(time.Date(2000, 1, 1, 1, 0, 0, 0, time.UTC)): asynq.TaskStateRetry} {
		t.Run(fmt.Sprint(end), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, queues := redistest.Mini(t)
				_, limiter := redistest.Mini(t)
				var toLimiter wire
				limiter.AddHook(redistest.Hook(toLimiter.around))
				runs := 0
				st := start(t, queues, settings{config: quick, redis: limiter, limits: []throttle.Limit{perMinute(600, 10)}, handle: func(context.Context, *asynq.Task) error {
					if runs++; runs == 1 {
						return RateLimited(time.Time{})
					}
					toLimiter.slow.Store(int64(4 * time.Second))
					return end
				}})
				id := st.enqueue(asynq.NewTask("job", nil, asynq.MaxRetry(0), asynq.Timeout(2*time.Second), asynq.Retention(time.Hour)))
				time.Sleep(20 * time.Second)
				toLimiter.slow.Store(0)
				if info := st.info(id); info == nil || info.State != state || runs != 2 {
					t.Errorf("job: %+v after %d runs, want it %s after two", info, runs, state)
				}
			})
		})
	}
}

// A job's Timeout and Deadline stay what its producer said, in whatever way its
// attempt ends.
func TestTimeout_StaysInMessage(t *testing.T) {
	states := map[string]asynq.TaskState{"done": asynq.TaskStateCompleted, "fails": asynq.TaskStateRetry, "fails for good": asynq.TaskStateArchived, "put back": asynq.TaskStateRetry}
	ends := map[string]error{"fails": errors.New("boom"), "fails for good": asynq.SkipRetry, "put back": RetryAfter(time.Hour)}
	handle := func(_ context.Context, task *asynq.Task) error { return ends[string(task.Payload())] }
	config := idle // a config without a Concurrency is replaced by this one as a whole
	config.RetryDelayFunc = func(int, error, *asynq.Task) time.Duration { return time.Hour }
	virtual(t, settings{config: config, limits: []throttle.Limit{perMinute(600, 10)}, handle: handle}, func(t *testing.T, st *stack) {
		for end, state := range states {
			for _, timeout := range []time.Duration{0, 3 * time.Second} {
				for _, deadline := range []time.Time{{}, time.Now().Add(time.Hour), time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)} {
					id := st.enqueue(asynq.NewTask("job", []byte(end), asynq.MaxRetry(1), asynq.Retention(time.Hour), asynq.Timeout(timeout), asynq.Deadline(deadline)))
					before := st.info(id)
					time.Sleep(16 * time.Second)
					info := st.info(id)
					if info == nil || info.State != state || info.Timeout != before.Timeout || !info.Deadline.Equal(before.Deadline) {
						t.Errorf("%s, timeout %s, deadline %s: %+v", end, timeout, deadline, info)
					}
				}
			}
		}
	})
}

// Nobody begins a job whose deadline has passed while it asked.
func TestDeadline_PassesInRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, queues := redistest.Mini(t)
		_, limiter := redistest.Mini(t)
		var toLimiter wire
		limiter.AddHook(redistest.Hook(toLimiter.around))
		freed := 0
		st := start(t, queues, settings{config: idle, redis: limiter, limits: []throttle.Limit{oneSlot}, freed: func(string) { freed++ }})
		time.Sleep(time.Minute)
		toLimiter.slow.Store(int64(70 * time.Second))
		id := st.enqueue(needing(""), asynq.Deadline(time.Now().Add(time.Minute)))
		time.Sleep(50 * time.Second)
		toLimiter.slow.Store(0) // for what is called from now on
		time.Sleep(time.Minute)
		if info := st.info(id); info == nil || info.State != asynq.TaskStateArchived || !strings.HasPrefix(info.LastErr, "too late: ") || len(st.ran()) != 0 {
			t.Errorf("job: %+v, ran %v; want it archived as too late", info, st.ran())
		}
		if freed != 1 {
			t.Errorf("%d slots were freed, want the one that it got", freed)
		}
	})
}
