package scheduler

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/throttle"
)

// 100 a day in New York, 250 jobs, from Saturday, half an hour before midnight, over the
// day that is an hour short. miniredis sorts a set anew for each look at it, so 2,000 a day
// would take minutes, and show no more.
func TestCalendarWindow_DSTChange(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	newYork, err := time.LoadLocation("America/New_York")
	if err != nil {
		t.Fatal(err)
	}
	limit := throttle.Limit{Name: "api", Kind: throttle.FixedWindow, Rate: throttle.PerDay(100), Zone: newYork.String()}
	config := asynq.Config{Concurrency: 8, TaskCheckInterval: 20 * time.Second, DelayedTaskCheckInterval: time.Minute, JanitorInterval: time.Hour}
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Date(2000, 4, 1, 23, 30, 0, 0, newYork)))
		_, rdb := redistest.Mini(t)
		st := start(t, rdb, settings{config: config, limits: []throttle.Limit{limit}, passes: 10 * time.Hour, quiet: 10 * time.Minute})
		for i := range 250 {
			st.enqueue(NewTask("job", nil, asynq.MaxRetry(0)), asynq.TaskID(fmt.Sprintf("job-%03d", i)))
		}
		time.Sleep(time.Hour)
		st.server.Shutdown() // no job runs for the rest of Sunday, which has 23 hours
		time.Sleep(22 * time.Hour)
		monday := start(t, rdb, settings{config: config, limits: []throttle.Limit{limit}, passes: 10 * time.Hour, quiet: 10 * time.Minute})
		time.Sleep(time.Hour)
		st.wantOnceEach(200)
		monday.wantOnce(50)
		monday.wantClean()
		perDay := map[string]int{}
		for _, d := range append(slices.Clone(st.limiter.allowed), monday.limiter.allowed...) {
			perDay[d.At.Add(d.BeginIn).In(newYork).Format(time.DateOnly)]++
		}
		wantNotOver(t, limit, time.Time{}, st, monday)
		if perDay["2000-04-01"] != 100 || perDay["2000-04-02"] != 100 || perDay["2000-04-03"] != 50 {
			t.Errorf("jobs per day: %v, want 100, 100, 50", perDay)
		}
	})
}

// A change of a limit reaches the jobs that wait, whatever they were told.
func TestLimits_LiveChange(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	ctx := context.Background()
	slow := throttle.Limit{Name: "api", Kind: throttle.Funnel, Rate: throttle.Every(24 * time.Hour)}
	fast := throttle.Limit{Name: "api", Kind: throttle.Funnel, Rate: throttle.PerSecond(10), Capacity: 10}
	tests := []struct {
		name   string
		before func(st *stack) error
		change func(st *stack) error
	}{
		{"raise", nil, func(st *stack) error { return st.limiter.Set(ctx, fast) }},
		{"another kind", nil, func(st *stack) error {
			return st.limiter.Set(ctx, throttle.Limit{Name: "api", Kind: throttle.SlidingLog, Rate: throttle.PerSecond(100)})
		}},
		{"reset", nil, func(st *stack) error { return st.limiter.Reset(ctx, "api", "") }},
		{"resume", func(st *stack) error { return st.limiter.Pause(ctx, "api") }, func(st *stack) error {
			if err := st.limiter.Reset(ctx, "api", ""); err != nil {
				return err
			}
			return st.limiter.Resume(ctx, "api")
		}},
		{"unblock", func(st *stack) error {
			if err := st.limiter.Reset(ctx, "api", ""); err != nil {
				return err
			}
			return st.limiter.Block(ctx, "api", "", time.Now().Add(10*time.Hour))
		}, func(st *stack) error { return st.limiter.Block(ctx, "api", "", time.Now()) }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			virtual(t, settings{limits: []throttle.Limit{slow}}, func(t *testing.T, st *stack) {
				if d, err := st.limiter.Allow(ctx, "api", ""); !d.OK() {
					t.Fatal(d, err)
				}
				if test.before != nil {
					st.must(test.before(st))
				}
				st.enqueue(NewTask("job", nil, asynq.MaxRetry(0)))
				time.Sleep(10 * time.Minute)
				if n := len(st.ran()); n != 0 {
					t.Fatalf("ran %d times before the change", n)
				}
				st.must(test.change(st))
				time.Sleep(time.Minute)
				st.wantOnce(1)
				st.wantClean()
			})
		})
	}
}

// With polling asynq's own polls bring every job back, later.
func TestWithPolling(t *testing.T) {
	virtual(t, settings{limits: []throttle.Limit{perMinute(6, 3)}, options: []Option{WithPolling()}}, func(t *testing.T, st *stack) {
		for range 20 {
			st.enqueue(NewTask("job", nil, asynq.MaxRetry(0)))
		}
		time.Sleep(time.Hour)
		if n := len(st.ran()); n != 20 {
			t.Errorf("%d jobs ran, want 20", n)
		}
		st.wantClean()
	})
}

// Of two configs that say something else of one limit the one read last holds; who
// read the other one says so, once each time that it becomes so.
func TestLimits_TwoConfigVersionsLogged(t *testing.T) {
	var olds, news journal
	slow, fast := perMinute(6, 1), perMinute(60, 1)
	virtual(t, settings{limits: []throttle.Limit{slow}, log: olds.logger()}, func(t *testing.T, st *stack) {
		wait := func(when string, old, newer int) {
			t.Helper()
			time.Sleep(claimEach + time.Second)
			const line = "another process's config says otherwise of a limit"
			if n, m := strings.Count(olds.String(), line), strings.Count(news.String(), line); n != old || m != newer {
				t.Errorf("%s: said %d and %d times, want %d and %d:\n%s%s", when, n, m, old, newer, olds.String(), news.String())
			}
		}
		wait("alone", 0, 0)
		newer := start(t, st.rdb, settings{config: idle, limits: []throttle.Limit{fast}, log: news.logger()})
		wait("another's config is read", 1, 0)
		wait("a while later", 1, 0)
		st.must(st.limiter.Set(t.Context(), perMinute(30, 1)))
		wait("somebody sets the limit", 1, 0)
		st.must(st.server.Define(t.Context(), slow))
		wait("the old config is read again", 1, 1)
		st.must(newer.server.Define(t.Context(), fast))
		wait("and the new one", 2, 1)
		st.must(st.limiter.Delete(t.Context(), "api"))
		wait("the limit is deleted", 2, 1)
	})
}
