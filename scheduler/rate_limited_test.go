package scheduler

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/throttle"
)

// byHost needs one permit of the first limit for the payload as its key.
func byHost(task *asynq.Task) (Rule, error) {
	return Rule{Needs: []throttle.Need{{Limit: "host", Key: string(task.Payload())}, {Limit: "all"}}}, nil
}

// TestRateLimited: the other side refuses until a moment. Who is underway is refused
// too, all others wait; who comes back runs first, in the old order, and nobody
// spends an attempt.
func TestRateLimited(t *testing.T) {
	limits := []throttle.Limit{
		{Name: "host", Kind: throttle.SlidingLog, Rate: throttle.PerSecond(3)},
		{Name: "all", Kind: throttle.SlidingLog, Rate: throttle.PerSecond(100)},
	}
	for _, said := range []bool{true, false} {
		t.Run(fmt.Sprint("until known ", said), func(t *testing.T) {
			var opens time.Time
			var mu sync.Mutex // guards what follows
			refused := 0
			var ran []string
			seen := func() (string, int) {
				mu.Lock()
				defer mu.Unlock()
				return strings.Join(ran, " "), refused
			}
			handle := func(ctx context.Context, task *asynq.Task) error {
				id, _ := asynq.GetTaskID(ctx)
				mu.Lock()
				defer mu.Unlock()
				if string(task.Payload()) == "a" && time.Now().Before(opens) {
					refused++
					if said {
						return fmt.Errorf("429: %w", RateLimited(opens))
					}
					return RateLimited(time.Time{})
				}
				ran = append(ran, id)
				return nil
			}
			one := idle
			one.Concurrency = 1
			virtual(t, settings{config: one, limits: limits, rule: byHost, handle: handle}, func(t *testing.T, st *stack) {
				opens = time.Now().Add(90 * time.Second)
				var want []string
				for i := range 12 {
					want = append(want, st.enqueue(NewTask("job", []byte("a"), asynq.MaxRetry(0)), asynq.TaskID(fmt.Sprintf("job-%02d", i))))
				}
				time.Sleep(30 * time.Second)
				st.enqueue(NewTask("job", []byte("b"), asynq.MaxRetry(0)), asynq.TaskID("other"))
				time.Sleep(20 * time.Second)
				if order, _ := seen(); order != "other" {
					t.Errorf("ran %s while a was shut, want other", order)
				}
				time.Sleep(10 * time.Minute)
				order, times := seen()
				if got := strings.TrimPrefix(order, "other "); got != strings.Join(want, " ") {
					t.Errorf("order\n%s, want\n%s", got, want)
				}
				if most := map[bool]int{true: 3, false: 24}[said]; times > most {
					t.Errorf("refused %d times, want at most %d", times, most)
				}
				if len(st.reported) != 0 {
					t.Errorf("the program's error handler heard of it: %v", st.reported)
				}
				if keys, err := st.limiter.Keys(t.Context(), "host"); err != nil || len(keys) != 0 {
					t.Errorf("after a success: %v, %v", keys, err)
				}
				st.wantClean()
			})
		})
	}
}

// TestRateLimited_NothingToBlock: a job without limits, or that blocks none of its
// own, is put back for the time, or fails as any other.
func TestRateLimited_NothingToBlock(t *testing.T) {
	for name, rule := range map[string]Rule{
		"no limits": {},
		"no blocks": {Needs: []throttle.Need{{Limit: "api"}}, BlockOnRateLimit: []string{}},
		"others'":   {Needs: []throttle.Need{{Limit: "api"}}, BlockOnRateLimit: []string{"other"}},
	} {
		t.Run(name, func(t *testing.T) {
			var until time.Time
			handle := func(context.Context, *asynq.Task) error {
				if time.Now().Before(until) {
					return RateLimited(until)
				}
				return RateLimited(time.Time{})
			}
			find := func(*asynq.Task) (Rule, error) { return rule, nil }
			virtual(t, settings{limits: []throttle.Limit{perMinute(6, 3)}, rule: find, handle: handle}, func(t *testing.T, st *stack) {
				until = time.Now().Add(time.Minute)
				id := st.enqueue(NewTask("job", nil, asynq.MaxRetry(0)))
				time.Sleep(50 * time.Second)
				if info := st.info(id); len(st.ran()) != 1 || info.State != asynq.TaskStateRetry || info.Retried != 0 {
					t.Errorf("ran %d times, %+v", len(st.ran()), info)
				}
				time.Sleep(2 * time.Minute)
				if info := st.info(id); len(st.ran()) != 2 || info.State != asynq.TaskStateArchived {
					t.Errorf("ran %d times, %+v", len(st.ran()), info)
				}
			})
		})
	}
}

// TestRateLimited_UntilNow: a moment that is over does not say when the other side can be
// called again.
func TestRateLimited_UntilNow(t *testing.T) {
	limit := throttle.Limit{Name: "api", Kind: throttle.Funnel, Rate: throttle.PerSecond(100)}
	handle := func(context.Context, *asynq.Task) error { return RateLimited(time.Now()) }
	virtual(t, settings{config: quick, limits: []throttle.Limit{limit}, handle: handle}, func(t *testing.T, st *stack) {
		st.enqueue(NewTask("job", nil, asynq.MaxRetry(0)))
		time.Sleep(20 * time.Second)
		if n := len(st.ran()); n < 4 || n > 6 {
			t.Errorf("refused %d times in 20 s, want at growing intervals", n)
		}
	})
}

// TestRateLimited_TooLong: a job that may not wait so long is archived when its time is up.
func TestRateLimited_TooLong(t *testing.T) {
	rule := func(*asynq.Task) (Rule, error) {
		return Rule{Needs: []throttle.Need{{Limit: "api"}}, MaxWait: time.Minute}, nil
	}
	handle := func(context.Context, *asynq.Task) error { return RateLimited(time.Now().Add(time.Hour)) }
	virtual(t, settings{limits: []throttle.Limit{perMinute(6, 3)}, rule: rule, handle: handle}, func(t *testing.T, st *stack) {
		id := st.enqueue(NewTask("job", nil, asynq.MaxRetry(5)))
		time.Sleep(30 * time.Second)
		if info := st.info(id); info.State != asynq.TaskStateRetry {
			t.Errorf("after 30 s: %v %q, want it to wait: it may be opened before", info.State, info.LastErr)
		}
		time.Sleep(45 * time.Second)
		if info := st.info(id); info.State != asynq.TaskStateArchived || !strings.Contains(info.LastErr, "within the time that it may wait") {
			t.Errorf("%v %q", info.State, info.LastErr)
		}
		st.wantClean()
	})
}

// TestRule_BlockedNeeds: which keys a refusal shuts.
func TestRule_BlockedNeeds(t *testing.T) {
	shared, other := throttle.Need{Limit: "shared"}, throttle.Need{Limit: "other"}
	host := throttle.Need{Limit: "host", Key: "a"}
	for _, tt := range []struct {
		name string
		rule Rule
		want string
	}{
		{"only those with a key", Rule{Needs: []throttle.Need{shared, host}}, "[host]"},
		{"all where none has one", Rule{Needs: []throttle.Need{shared, other}}, "[shared other]"},
		{"what the rule says", Rule{Needs: []throttle.Need{shared, host}, BlockOnRateLimit: []string{"shared"}}, "[shared]"},
		{"nothing", Rule{Needs: []throttle.Need{shared, host}, BlockOnRateLimit: []string{}}, "[]"},
	} {
		var limits []string
		for _, n := range tt.rule.blockedNeeds() {
			limits = append(limits, n.Limit)
		}
		if got := fmt.Sprint(limits); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

func TestRateLimited_Text(t *testing.T) {
	until := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	if got := errors.Join(RateLimited(until), RateLimited(time.Time{})).Error(); got != "blocked by the upstream until 2026-11-20T12:00:00Z\nblocked by the upstream" {
		t.Error(got)
	}
}

// TestRateLimited_LimiterAway: where the limiter cannot be told of a refusal the job
// still waits as long as the other side said, also once the limiter is back.
func TestRateLimited_LimiterAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, queues := redistest.Mini(t)
		_, limiter := redistest.Mini(t)
		var toLimiter wire
		limiter.AddHook(redistest.Hook(toLimiter.around))
		until := time.Now().Add(30 * time.Minute)
		handle := func(context.Context, *asynq.Task) error {
			if time.Now().After(until) {
				return nil
			}
			toLimiter.cut.Store(true)
			return RateLimited(until)
		}
		st := start(t, queues, settings{config: idle, redis: limiter, limits: []throttle.Limit{perMinute(60, 1)}, handle: handle})
		st.enqueue(NewTask("job", nil, asynq.MaxRetry(0)))
		time.Sleep(time.Minute)
		toLimiter.cut.Store(false)
		time.Sleep(time.Hour)
		if runs := st.ran(); len(runs) != 2 || runs[1].at.Before(until) {
			t.Errorf("ran %v; want twice, the second time after %v", runs, until)
		}
		st.wantClean()
	})
}
