package scheduler

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/throttle"
)

// A server that has just emptied its queue, and so does not look again at once, does where
// somebody rings.
func TestMarker_NextJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, rdb := redistest.Mini(t)
		began := make(chan time.Time, 1)
		start(t, redistest.MiniClient(t, m), settings{
			config: asynq.Config{Concurrency: 10}, limits: []throttle.Limit{perMinute(6000, 100)},
			handle: func(context.Context, *asynq.Task) error { began <- time.Now(); return nil },
		})
		time.Sleep(time.Minute)
		for range 20 {
			rang := time.Now()
			if _, err := NewClient(rdb).Enqueue(asynq.NewTask("job", nil)); err != nil {
				t.Fatal(err)
			}
			if late := (<-began).Sub(rang); late > time.Millisecond {
				t.Errorf("a job began after %s, want it at once", late)
			}
			time.Sleep(shortestWait / 3)
		}
	})
}

// TestMarker_AfterCallEnded: a server hears of a job at once, also if its wait goes on when the call
// of Redis that waits for marks ends.
func TestMarker_AfterCallEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, rdb := redistest.Mini(t)
		began := make(chan time.Time, 1)
		start(t, redistest.MiniClient(t, m), settings{
			config: asynq.Config{Concurrency: 10}, limits: []throttle.Limit{perMinute(6000, 100)},
			handle: func(context.Context, *asynq.Task) error { began <- time.Now(); return nil },
		})
		time.Sleep(time.Minute)
		add(t, rdb, "without a mark") // so that the server looks in between
		<-began
		for range 30 {
			time.Sleep(longestWait + longestWait/100)
			rang := time.Now()
			if _, err := NewClient(rdb).Enqueue(asynq.NewTask("job", nil)); err != nil {
				t.Fatal(err)
			}
			if late := (<-began).Sub(rang); late > time.Millisecond {
				t.Errorf("a job began after %s, want it at once", late)
			}
		}
	})
}

// Where marks tell of all jobs, a server does not look in between; a job without one has it
// look again soon.
func TestMarker_PollsBetween(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, rdb := redistest.Mini(t)
		began := make(chan time.Time, 1)
		var sent dequeueCount
		served := redistest.MiniClient(t, m)
		served.AddHook(redistest.Hook(sent.around))
		start(t, served, settings{
			config: asynq.Config{Concurrency: 10}, limits: []throttle.Limit{perMinute(6000, 100)},
			handle: func(context.Context, *asynq.Task) error { began <- time.Now(); return nil },
		})
		time.Sleep(time.Minute)
		sent.n.Store(0)
		for range 20 {
			if _, err := NewClient(rdb).Enqueue(asynq.NewTask("job", nil)); err != nil {
				t.Fatal(err)
			}
			<-began
			time.Sleep(40 * time.Millisecond)
		}
		if n := sent.n.Load(); n > 22 {
			t.Errorf("%d looks for 20 jobs of which marks told", n)
		}
		add(t, rdb, "without a mark")
		<-began
		asked := time.Now()
		add(t, rdb, "another")
		if late := (<-began).Sub(asked); late > 2*shortestWait {
			t.Errorf("a job after one without a mark began after %s", late)
		}
	})
}

// A dequeueCount counts how often a server has looked for jobs.
type dequeueCount struct{ n atomic.Int64 }

func (c *dequeueCount) around(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	if slices.Contains(cmd.Args(), any(asynqdb.Key("default", asynqdb.Paused))) {
		c.n.Add(1)
	}
	return next(ctx, cmd)
}

// Two servers of one slot sleep. Two jobs become pending for which somebody rings once: the
// server that wakes leaves a mark for the other.
func TestMarker_OneForManyJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := redistest.Mini(t)
		began := make(chan time.Time, 2)
		for range 2 {
			start(t, redistest.MiniClient(t, m), settings{
				config: asynq.Config{Concurrency: 1}, limits: []throttle.Limit{perMinute(6000, 100)},
				handle: func(context.Context, *asynq.Task) error {
					began <- time.Now()
					time.Sleep(10 * time.Second)
					return nil
				},
			})
		}
		time.Sleep(time.Minute)
		rdb := redistest.MiniClient(t, m)
		addMany(t, rdb, 2)
		rang := time.Now()
		rdb.ZAdd(t.Context(), markerKey("default"), redis.Z{Member: "0"})
		for range 2 {
			if late := (<-began).Sub(rang); late > shortestWait {
				t.Errorf("a job began after %s, want it at once", late)
			}
		}
		time.Sleep(time.Minute)
	})
}

// TestMarker_PausesAfterErrors: a server whose Redis refuses each fetch at once, as for a missing right,
// does not fetch again at once.
func TestMarker_PausesAfterErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := redistest.Mini(t)
		var refuses atomic.Bool
		var calls atomic.Int64
		rdb := redistest.MiniClient(t, m)
		rdb.AddHook(redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			if !refuses.Load() || !strings.HasPrefix(cmd.Name(), "eval") {
				return next(ctx, cmd)
			}
			if calls.Add(1) > 1000 {
				time.Sleep(time.Second) // so that time passes although the server does not pause
			}
			err := errors.New("NOPERM this user has no permissions to run the 'evalsha' command")
			cmd.SetErr(err)
			return err
		}))
		start(t, rdb, settings{config: asynq.Config{Concurrency: 10}})
		refuses.Store(true)
		time.Sleep(10 * time.Second)
		refuses.Store(false)
		if n := calls.Load(); n > 300 {
			t.Errorf("%d calls in 10 s", n)
		}
	})
}
