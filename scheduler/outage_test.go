package scheduler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redishealth"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/throttle"
)

// TestOutage_LogLines: an outage is one log line when it begins and one when it ends, which say
// whose outage it is; jobs wait, and none is lost.
func TestOutage_LogLines(t *testing.T) {
	slow(t)
	for name, wire := range map[string]func(st *stack) *wire{
		"the limiter's Redis": func(st *stack) *wire { return st.toLimiter },
		"the queues' Redis":   func(st *stack) *wire { return st.toQueues },
	} {
		t.Run(name, func(t *testing.T) {
			var log journal
			virtual(t, settings{
				config: asynq.Config{Concurrency: 2, TaskCheckInterval: time.Second}, split: true, log: log.logger(), limits: []throttle.Limit{perMinute(60, 1)},
				passes: 100 * time.Millisecond,
			}, func(t *testing.T, st *stack) {
				for i := range 60 {
					st.enqueueN(1, "", asynq.ProcessIn(time.Duration(i)*time.Second))
				}
				for range 2 {
					time.Sleep(10 * time.Second)
					wire(st).cut.Store(true)
					time.Sleep(10 * time.Second)
					wire(st).cut.Store(false)
				}
				time.Sleep(3 * time.Minute)
				if n := len(st.ran()); n < 60 {
					t.Errorf("%d jobs ran, want all 60", n)
				}
				begins, ends := log.times(name+" cannot be used: jobs wait"), log.times(name+" is back: jobs go on")
				if lines := log.times("\n"); begins != 2 || ends != 2 || lines != 4 {
					t.Errorf("logged\n%s\nwant a line when each of two outages begins and ends", &log)
				}
			})
		})
	}
}

// lines has what was logged, a line each.
type lines chan string

func (l lines) Write(line []byte) (int, error) {
	l <- string(line)
	return len(line), nil
}

// TestOutage_RefusedWritesAreOne: a Redis that takes no writes still answers commands that only
// read. It is one outage all the same, and the server is not ready.
func TestOutage_RefusedWritesAreOne(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]struct{ option, refuse, take, why string }{
		"full":        {"maxmemory", "1", "0", "its memory is full"},
		"no replicas": {"min-replicas-to-write", "1", "0", "it has fewer replicas"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb := redistest.Real(t)
			probes := make(chan struct{}, 100) // writes that are tried in the outage
			rdb.AddHook(redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
				if cmd.Name() == "rpushx" {
					defer func() { probes <- struct{}{} }()
				}
				return next(ctx, cmd)
			}))
			log, ran := make(lines, 100), make(chan struct{}, 100)
			limit := funnel("api", 100, 1)
			st := start(t, rdb, settings{
				config: asynq.Config{Concurrency: 2}, log: slog.New(slog.NewTextHandler(log, nil)), limits: []throttle.Limit{limit},
				handle: func(context.Context, *asynq.Task) error { ran <- struct{}{}; return nil },
			})
			st.enqueueN(cap(ran), "")
			<-ran
			if err := st.server.Ready(t.Context()); err != nil {
				t.Errorf("ready: %v, want nil", err)
			}
			st.must(rdb.ConfigSet(t.Context(), set.option, set.refuse).Err())
			if err := st.server.Ready(t.Context()); !redishealth.ProblemOf(err).RefusesWrites() {
				t.Errorf("ready: %v, want that Redis takes no writes", err)
			}
			wantLine := func(want string) {
				t.Helper()
				if line := <-log; !strings.Contains(line, want) {
					t.Errorf("logged %q, want %q", line, want)
				}
			}
			wantLine(`Redis cannot be used: jobs wait" why="` + set.why)
			for range 2 + 1 + 2 { // Ready's above, and two in the outage, which are a second apart
				select {
				case <-probes:
				case line := <-log:
					t.Fatalf("logged during the outage: %s", line)
				}
			}
			st.must(rdb.ConfigSet(t.Context(), set.option, set.take).Err())
			wantLine("Redis is back: jobs go on")
			for range 20 {
				<-ran
			}
			for len(log) > 0 {
				if line := <-log; strings.Contains(line, set.why) {
					t.Errorf("logged %q again", line)
				}
			}
			wantNotOver(t, limit, time.Time{}, st)
		})
	}
}

// TestOutage_SpendsNoAttempt: while the limiter's Redis hangs, jobs that ask for permits use up
// neither their Timeout nor an attempt, and each runs with all of its time.
func TestOutage_SpendsNoAttempt(t *testing.T) {
	slow(t)
	for name, test := range map[string]struct {
		slow  time.Duration // what a command takes in the outage
		fails bool          // after that
	}{"a stall": {2600 * time.Millisecond, false}, "hangs and answers": {20 * time.Second, false}, "hangs and fails": {20 * time.Second, true}} {
		t.Run(name, func(t *testing.T) {
			handle := func(ctx context.Context, _ *asynq.Task) error {
				until, ok := ctx.Deadline()
				if left := time.Until(until); !ok || left != 2*time.Second || ctx.Err() != nil {
					t.Errorf("a handler began with %s left (%v), want all of the 2 s", left, ctx.Err())
				}
				return nil
			}
			config := asynq.Config{Concurrency: 4, TaskCheckInterval: time.Second}
			virtual(t, settings{config: config, split: true, limits: []throttle.Limit{perMinute(60, 4)}, handle: handle}, func(_ *testing.T, st *stack) {
				time.Sleep(time.Minute)
				st.toLimiter.slow.Store(int64(test.slow))
				st.toLimiter.cut.Store(test.fails)
				for i := range 20 {
					st.enqueueN(1, "", asynq.MaxRetry(i%2), asynq.Timeout(2*time.Second))
				}
				time.Sleep(45 * time.Second)
				st.toLimiter.slow.Store(0)
				st.toLimiter.cut.Store(false)
				time.Sleep(2 * time.Minute)
				st.wantOnceEach(20)
				st.wantNothingLeft()
				st.wantNotReported()
			})
		})
	}
}

// TestOutage_StartMeanwhile: a server that starts during an outage of the limiter's Redis defines
// its limits after it, and before a job runs.
func TestOutage_StartMeanwhile(t *testing.T) {
	down := &wire{}
	down.cut.Store(true)
	toLimiter := redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if strings.Contains(fmt.Sprint(cmd.Args()), scopePrefix) {
			return down.around(ctx, cmd, next)
		}
		return next(ctx, cmd)
	})
	virtual(t, settings{split: true, hooks: []redis.Hook{toLimiter}, limits: []throttle.Limit{perMinute(60, 1)}}, func(_ *testing.T, st *stack) {
		st.enqueueN(1, "")
		time.Sleep(time.Minute)
		st.wantRuns(0)
		down.cut.Store(false)
		time.Sleep(time.Minute)
		st.wantOnceEach(1)
	})
}

// TestAcquire_LimiterHangs: while the limiter hangs, jobs that need none of its limits go on.
func TestAcquire_LimiterHangs(t *testing.T) {
	virtual(t, settings{config: asynq.Config{Concurrency: 20}, split: true, limits: []throttle.Limit{perMinute(6000, 100)}, rule: ruleOfPayload}, func(_ *testing.T, st *stack) {
		time.Sleep(time.Minute)
		st.toLimiter.slow.Store(int64(20 * time.Second))
		began := time.Now()
		for range 10 {
			st.enqueueN(1, "api")
			st.enqueueN(1, "")
		}
		time.Sleep(time.Second)
		st.wantLastBy(began, 10, 500*time.Millisecond)
		st.toLimiter.slow.Store(0)
		time.Sleep(time.Minute)
		st.wantOnceEach(20)
	})
}

// TestTimeout_BeginsWithHandler: a handler's time begins when the handler begins. When it is over,
// asynq gives the job up as it always does, though the handler goes on: the worker takes the next
// job.
func TestTimeout_BeginsWithHandler(t *testing.T) {
	type key struct{}
	var ended []time.Duration
	handle := func(ctx context.Context, _ *asynq.Task) error {
		began := time.Now()
		<-ctx.Done()
		ended = append(ended, time.Since(began))
		if !errors.Is(ctx.Err(), context.DeadlineExceeded) || ctx.Value(key{}) != "the program's" {
			t.Errorf("the context ended by %v, with the value %v", ctx.Err(), ctx.Value(key{}))
		}
		time.Sleep(20 * time.Second)
		return nil
	}
	config := asynq.Config{
		Concurrency: 1, TaskCheckInterval: time.Second,
		BaseContext: func() context.Context { return context.WithValue(context.Background(), key{}, "the program's") },
		IsFailure: func(err error) bool {
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("IsFailure is asked of %v", err)
			}
			return true
		},
	}
	virtual(t, settings{config: config, split: true, limits: []throttle.Limit{perMinute(600, 10)}, handle: handle}, func(t *testing.T, st *stack) {
		time.Sleep(time.Minute)
		st.toLimiter.slow.Store(int64(5 * time.Second))
		var jobs []string
		for i := range 4 {
			jobs = append(jobs, st.enqueueN(1, "", asynq.MaxRetry(9*(i%2)), asynq.Timeout(3*time.Second))...)
		}
		time.Sleep(time.Minute)
		if len(ended) < 4 {
			t.Errorf("%d contexts ended within a minute, want one in 8 to 13 s", len(ended))
		}
		for _, took := range ended {
			if took != 3*time.Second {
				t.Errorf("a context ended after %s, want 3 s", took)
			}
		}
		for i, id := range jobs {
			if i%2 == 0 {
				st.wantJob(id, asynq.TaskStateArchived, "context deadline exceeded")
			} else if info := st.info(id); info.Retried == 0 || info.LastErr != "context deadline exceeded" {
				t.Errorf("job %s was retried %d times after %q", id, info.Retried, info.LastErr)
			}
		}
		st.server.Shutdown()
		time.Sleep(20 * time.Second)
	})
}

// TestTimeout_EndsWithHandler: what a handler returned in time counts, even if the report to the
// limiter hangs until the job's time is over.
func TestTimeout_EndsWithHandler(t *testing.T) {
	for end, state := range map[error]asynq.TaskState{nil: asynq.TaskStateCompleted, RateLimited(time.Date(2000, 1, 1, 1, 0, 0, 0, time.UTC)): asynq.TaskStateRetry} {
		t.Run(fmt.Sprint(end), func(t *testing.T) {
			virtual(t, settings{config: quick, split: true, limits: []throttle.Limit{perMinute(600, 10)}}, func(_ *testing.T, st *stack) {
				st.handle = func(context.Context, *asynq.Task) error {
					if len(st.ran()) == 1 {
						return RateLimited(time.Time{})
					}
					st.toLimiter.slow.Store(int64(4 * time.Second))
					return end
				}
				id := st.enqueueN(1, "", asynq.Timeout(2*time.Second), asynq.Retention(time.Hour))[0]
				time.Sleep(20 * time.Second)
				st.toLimiter.slow.Store(0)
				st.wantJob(id, state, "")
				st.wantRuns(2)
			})
		})
	}
}

// TestDeadline_PassesInRequest: a job whose deadline passes while it asks for permits does not
// start, and gives back what it got.
func TestDeadline_PassesInRequest(t *testing.T) {
	frees := 0
	virtual(t, settings{split: true, limits: []throttle.Limit{oneSlot}, freed: func(string) { frees++ }}, func(t *testing.T, st *stack) {
		time.Sleep(time.Minute)
		st.toLimiter.slow.Store(int64(70 * time.Second))
		id := st.enqueue(needing(""), asynq.Deadline(time.Now().Add(time.Minute)))
		time.Sleep(50 * time.Second)
		st.toLimiter.slow.Store(0) // for what is called from now on
		time.Sleep(time.Minute)
		st.wantJob(id, asynq.TaskStateArchived, "too late: ")
		st.wantRuns(0)
		if frees != 1 {
			t.Errorf("%d slots were freed, want the one that it got", frees)
		}
	})
}

// TestRateLimited_LimiterAway: if the report of a 429 does not reach the limiter, the job still
// waits until the time that the upstream named.
func TestRateLimited_LimiterAway(t *testing.T) {
	virtual(t, settings{split: true, limits: []throttle.Limit{perMinute(60, 1)}}, func(t *testing.T, st *stack) {
		until := time.Now().Add(10 * time.Minute)
		st.handle = func(context.Context, *asynq.Task) error {
			if time.Now().After(until) {
				return nil
			}
			st.toLimiter.cut.Store(true)
			return RateLimited(until)
		}
		st.enqueueN(1, "")
		time.Sleep(time.Minute)
		st.toLimiter.cut.Store(false)
		time.Sleep(15 * time.Minute)
		if runs := st.ran(); len(runs) != 2 || runs[1].at.Before(until) {
			t.Errorf("ran %v; want twice, the second time after %v", runs, until)
		}
		st.wantClean()
	})
}
