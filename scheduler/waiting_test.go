package scheduler

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/dispatcher"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/throttle"
)

// 100 a day in New York, 250 jobs, from Saturday, half an hour before midnight, over the
// day that is an hour short. miniredis sorts a set anew for each look at it, so 2,000 a day
// would take minutes, and show no more.
func TestDailyQuotaOverADSTChange(t *testing.T) {
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
		time.Sleep(24 * time.Hour) // until Monday, half past midnight: Sunday has 23
		st.wantOnce(250)
		st.wantClean()
		perDay := map[string]int{}
		for _, d := range st.limiter.allowed {
			perDay[d.At.Add(d.BeginIn).In(newYork).Format(time.DateOnly)]++
		}
		wantNotOver(t, limit, time.Time{}, st)
		if perDay["2000-04-01"] != 100 || perDay["2000-04-02"] != 100 || perDay["2000-04-03"] != 50 {
			t.Errorf("jobs per day: %v, want 100, 100, 50", perDay)
		}
		t.Logf("%d jobs, %d denied once, per day %v", len(st.limiter.allowed), len(st.limiter.denials), perDay)
	})
}

func TestConcurrencyWakesOnFree(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	var running, most atomic.Int32
	limit := throttle.Limit{Name: "slots", Kind: throttle.Concurrency, Capacity: 2, Lease: 9 * time.Second}
	work := func(context.Context, *asynq.Task) error {
		if n := running.Add(1); n > most.Load() {
			most.Store(n)
		}
		time.Sleep(time.Minute) // many leases long
		running.Add(-1)
		return nil
	}
	quick := asynq.Config{Concurrency: 5, TaskCheckInterval: time.Second}
	virtual(t, settings{config: quick, limits: []throttle.Limit{limit}, handle: work}, func(t *testing.T, st *stack) {
		for range 10 {
			st.enqueue(NewTask("job", nil, asynq.MaxRetry(0)))
		}
		time.Sleep(5*time.Minute + 30*time.Second)
		st.wantOnce(10)
		st.wantClean()
		if most.Load() != 2 {
			t.Errorf("%d ran at once, want 2", most.Load())
		}
	})
}

// A change of a limit reaches the jobs that wait, whatever they were told.
func TestLiveChange(t *testing.T) {
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

// Whatever is done to a waiting job by hand, the jobs behind it get its permit.
func TestJobsHandledByHand(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	limit := throttle.Limit{Name: "api", Kind: throttle.Funnel, Rate: throttle.PerMinute(1)}
	tests := []struct {
		name string
		hand func(st *stack, id string) error
		runs int
	}{
		{"deleted", func(st *stack, id string) error { return st.tasks.DeleteTask("default", id) }, 3},
		{"archived", func(st *stack, id string) error { return st.tasks.ArchiveTask("default", id) }, 3},
		{"run", func(st *stack, id string) error { return st.tasks.RunTask("default", id) }, 4},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			one := idle
			one.Concurrency = 1
			virtual(t, settings{config: one, limits: []throttle.Limit{limit}}, func(t *testing.T, st *stack) {
				for i := range 4 {
					st.enqueue(NewTask("job", nil, asynq.MaxRetry(0)), asynq.TaskID(fmt.Sprint(i)))
				}
				time.Sleep(30 * time.Second)
				st.must(test.hand(st, "2"))
				time.Sleep(3*time.Minute + 20*time.Second) // as long as the permits take
				if n := len(st.ran()); n != test.runs {
					t.Errorf("%d jobs ran, want %d", n, test.runs)
				}
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

// When the process that gives turns is gone, another takes over within 7 s.
func TestFailover(t *testing.T) {
	virtual(t, settings{limits: []throttle.Limit{perMinute(60, 1)}}, func(t *testing.T, st *stack) {
		time.Sleep(time.Second) // the first has the lease by then
		second := start(t, st.rdb, settings{config: idle, limits: []throttle.Limit{perMinute(60, 1)}})
		for range 40 {
			st.enqueue(NewTask("job", nil, asynq.MaxRetry(0)))
		}
		time.Sleep(20 * time.Second)
		const lease = "hg:{default}:leader"
		dead := st.rdb.Get(t.Context(), lease).Val()
		st.server.stopBackground()
		st.rdb.Set(t.Context(), lease, dead, dispatcher.MaxHeartbeat+dispatcher.Grace) // it died: the lease was not given back
		stopped := time.Now()
		for holder := dead; holder == dead || holder == ""; {
			holder = st.rdb.Get(t.Context(), lease).Val()
			time.Sleep(10 * time.Millisecond)
			if time.Since(stopped) > 7*time.Second {
				t.Fatal("nobody took over within 7 s")
			}
		}
		time.Sleep(5 * time.Minute)
		if n := len(st.ran()) + len(second.ran()); n != 40 {
			t.Errorf("%d jobs ran, want 40", n)
		}
		st.wantClean()
	})
}

// Two workers whose configs differ send each other's jobs from lane to lane;
// every job still runs once and nothing is left behind.
func TestTwoConfigVersions(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	limits := []throttle.Limit{perMinute(6, 1), {Name: "new", Kind: throttle.SlidingLog, Rate: throttle.PerMinute(5)}}
	virtual(t, settings{limits: limits}, func(t *testing.T, st *stack) {
		newer := start(t, st.rdb, settings{config: idle, limits: limits, rule: func(*asynq.Task) (Rule, error) {
			return Rule{Needs: []throttle.Need{{Limit: "api"}, {Limit: "new", Cost: 2}}}, nil
		}})
		for range 40 {
			st.enqueue(NewTask("job", nil, asynq.MaxRetry(0)))
		}
		time.Sleep(2 * time.Hour)
		ids := map[string]int{}
		for _, r := range append(st.ran(), newer.ran()...) {
			ids[r.id]++
		}
		for id, times := range ids {
			if times != 1 {
				t.Errorf("job %s ran %d times", id, times)
			}
		}
		if len(ids) != 40 || len(st.ran()) == 0 || len(newer.ran()) == 0 {
			t.Errorf("%d jobs ran, %d and %d by each, want 40 in all and some by each", len(ids), len(st.ran()), len(newer.ran()))
		}
		st.wantClean()
	})
}

// Of two configs that say something else of one limit the one read last holds; who
// read the other one says so, once each time that it becomes so.
func TestTwoConfigVersionsAreTold(t *testing.T) {
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
