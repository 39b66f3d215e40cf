package scheduler

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redishealth"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/throttle"
)

// A wire leads to Redis, and can be cut.
type wire struct {
	cut  atomic.Bool
	slow atomic.Int64 // nanoseconds that each command takes
}

func (w *wire) around(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	select {
	case <-ctx.Done():
		cmd.SetErr(ctx.Err())
		return ctx.Err()
	case <-after(time.Duration(w.slow.Load())):
	}
	if w.cut.Load() {
		if strings.HasPrefix(cmd.Name(), "eval") { // others may come with a lock held, which a bubble takes for work
			time.Sleep(100 * time.Millisecond) // as a dial that fails
		}
		cmd.SetErr(syscall.ECONNREFUSED)
		return syscall.ECONNREFUSED
	}
	return next(ctx, cmd)
}

// after is time.After, and at once for zero.
func after(d time.Duration) <-chan time.Time {
	if d > 0 {
		return time.After(d)
	}
	now := make(chan time.Time)
	close(now)
	return now
}

// A journal keeps what was logged, without times.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

func (j *journal) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(j, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key != slog.LevelKey && a.Key != slog.MessageKey {
			return slog.Attr{}
		}
		return a
	}}))
}

// TestOutage_LogLines: an outage is one line when it begins and one when it ends, which
// say whose it is; jobs wait, and none is lost.
func TestOutage_LogLines(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	lines := func(what string) string {
		return fmt.Sprintf("level=ERROR msg=\"%s cannot be used: jobs wait\"\nlevel=INFO msg=\"%[1]s is back: jobs go on\"\n", what)
	}
	tests := []struct {
		name            string
		limiter, queues bool // cut
		want            string
	}{
		{"the limiter's Redis", true, false, lines("the limiter's Redis")},
		{"the queues' Redis", false, true, lines("the queues' Redis")},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, queues := redistest.Mini(t)
				_, limiter := redistest.Mini(t)
				var toQueues, toLimiter wire
				queues.AddHook(redistest.Hook(toQueues.around))
				limiter.AddHook(redistest.Hook(toLimiter.around))
				var log journal
				st := start(t, queues, settings{
					config: asynq.Config{Concurrency: 2, TaskCheckInterval: time.Second}, redis: limiter, log: log.logger(),
					limits: []throttle.Limit{perMinute(60, 1)},
				})
				for range 60 {
					st.enqueue(asynq.NewTask("job", nil, asynq.MaxRetry(0)))
				}
				for range 2 {
					time.Sleep(10 * time.Second)
					toQueues.cut.Store(test.queues)
					toLimiter.cut.Store(test.limiter)
					time.Sleep(10 * time.Second)
					toQueues.cut.Store(false)
					toLimiter.cut.Store(false)
				}
				time.Sleep(10 * time.Minute)
				if n := len(st.ran()); n < 60 {
					t.Errorf("%d jobs ran, want all 60", n)
				}
				if got := log.String(); got != test.want+test.want {
					t.Errorf("logged\n%swant twice\n%s", got, test.want)
				}
			})
		})
	}
}

// A tries hook hears of each write that is tried in an outage.
type tries chan struct{}

func (c tries) around(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	if cmd.Name() == "rpushx" {
		defer func() { c <- struct{}{} }()
	}
	return next(ctx, cmd)
}

// told has what was logged, a line each.
type told chan string

func (t told) Write(line []byte) (int, error) {
	if !bytes.Contains(line, []byte("unknown to the limiter")) { // those that could not ask, where a pass meets them
		t <- string(line)
	}
	return len(line), nil
}

// A Redis that takes no writes goes on answering what only reads. It is one outage all
// the same, and the server is not ready.
func TestOutage_RefusedWritesAreOne(t *testing.T) {
	for name, set := range map[string]struct{ option, refuse, take string }{
		"full":        {"maxmemory", "1", "0"},
		"no replicas": {"min-replicas-to-write", "1", "0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb := redistest.Real(t)
			tries := make(tries, 100)
			rdb.AddHook(redistest.Hook(tries.around))
			told := make(told, 100)
			ran := make(chan struct{}, 100)
			limit := funnel("api", 100, 1)
			st := start(t, rdb, settings{
				config: asynq.Config{Concurrency: 2}, log: slog.New(slog.NewTextHandler(told, nil)), limits: []throttle.Limit{limit},
				handle: func(context.Context, *asynq.Task) error { ran <- struct{}{}; return nil },
			})
			for range cap(ran) {
				st.enqueue(asynq.NewTask("job", nil, asynq.MaxRetry(0)))
			}
			<-ran
			if err := st.server.Ready(t.Context()); err != nil {
				t.Errorf("ready: %v, want nil", err)
			}
			if err := rdb.ConfigSet(t.Context(), set.option, set.refuse).Err(); err != nil {
				t.Fatal(err)
			}
			if err := st.server.Ready(t.Context()); !redishealth.Of(err).RefusesWrites() {
				t.Errorf("ready: %v, want that Redis takes no writes", err)
			}
			wantLine := func(want string) {
				t.Helper()
				if line := <-told; !strings.Contains(line, want) {
					t.Errorf("logged %q, want %q", line, want)
				}
			}
			wantLine("Redis cannot be used: jobs wait")
			for range 2 + 1 + 2 { // Ready's above, and two in the outage, which are a second apart
				select {
				case <-tries:
				case line := <-told:
					t.Fatalf("logged during the outage: %s", line)
				}
			}
			if err := rdb.ConfigSet(t.Context(), set.option, set.take).Err(); err != nil {
				t.Fatal(err)
			}
			wantLine("Redis is back: jobs go on")
			for range 20 {
				<-ran
			}
			if len(told) > 0 {
				t.Errorf("logged %q, want nothing more", <-told)
			}
			wantNotOver(t, limit, time.Time{}, st)
		})
	}
}

// The limiter's Redis hangs: jobs that ask meanwhile use up neither their Timeout nor
// an attempt, whatever they were enqueued with, and each runs with all of its time.
func TestOutage_SpendsNoAttempt(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	for _, test := range []struct {
		name  string
		slow  time.Duration // what a command takes in the outage
		fails bool          // after that
	}{{"a stall", 2600 * time.Millisecond, false}, {"hangs and answers", 20 * time.Second, false}, {"hangs and fails", 20 * time.Second, true}} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, queues := redistest.Mini(t)
				_, limiter := redistest.Mini(t)
				var toLimiter wire
				limiter.AddHook(redistest.Hook(toLimiter.around))
				handle := func(ctx context.Context, _ *asynq.Task) error {
					until, ok := ctx.Deadline()
					if left := time.Until(until); !ok || left != 2*time.Second || ctx.Err() != nil {
						t.Errorf("a handler began with %s left (%v), want all of the 2 s", left, ctx.Err())
					}
					return nil
				}
				config := asynq.Config{Concurrency: 4, TaskCheckInterval: time.Second}
				st := start(t, queues, settings{config: config, redis: limiter, limits: []throttle.Limit{perMinute(60, 4)}, handle: handle})
				time.Sleep(time.Minute)
				toLimiter.slow.Store(int64(test.slow))
				toLimiter.cut.Store(test.fails)
				for i := range 20 {
					st.enqueue(asynq.NewTask("job", nil, asynq.MaxRetry(i%2), asynq.Timeout(2*time.Second)))
				}
				time.Sleep(45 * time.Second)
				toLimiter.slow.Store(0)
				toLimiter.cut.Store(false)
				time.Sleep(10 * time.Minute)
				st.wantOnceEach(20)
				if queue, err := st.tasks.GetQueueInfo("default"); err != nil || queue.Size != 0 || queue.FailedTotal != 0 {
					t.Errorf("queue: %+v, %v; want all jobs done and none failed", queue, err)
				}
				if len(st.reported) != 0 {
					t.Errorf("reported: %v", st.reported)
				}
			})
		})
	}
}

// The limiter's Redis comes back empty: the rules' limits are defined again
// before any job is refused for them.
func TestOutage_LostLimitIsDefined(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	synctest.Test(t, func(t *testing.T) {
		_, queues := redistest.Mini(t)
		m, limiter := redistest.Mini(t)
		st := start(t, queues, settings{config: idle, redis: limiter, limits: []throttle.Limit{perMinute(60, 1)}, quiet: time.Minute})
		for range 60 {
			st.enqueue(asynq.NewTask("job", nil, asynq.MaxRetry(0)))
		}
		time.Sleep(30 * time.Second)
		m.FlushAll()
		time.Sleep(10 * time.Minute)
		if queue, err := st.tasks.GetQueueInfo("default"); err != nil || queue.Archived != 0 || queue.Size != 0 {
			t.Errorf("queue: %+v, %v; want all jobs run and none archived", queue, err)
		}
		st.wantOnceEach(60)
	})
}

// A server that starts while the limiter's Redis is away defines its limits
// when that is back, and before a job runs.
func TestOutage_StartMeanwhile(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	synctest.Test(t, func(t *testing.T) {
		_, queues := redistest.Mini(t)
		_, limiter := redistest.Mini(t)
		var toLimiter wire
		limiter.AddHook(redistest.Hook(toLimiter.around))
		toLimiter.cut.Store(true)
		st := start(t, queues, settings{config: idle, redis: limiter, limits: []throttle.Limit{perMinute(60, 1)}})
		st.enqueue(asynq.NewTask("job", nil, asynq.MaxRetry(0)))
		time.Sleep(5 * time.Minute)
		if n := len(st.ran()); n != 0 {
			t.Errorf("ran %d times without its limit", n)
		}
		toLimiter.cut.Store(false)
		time.Sleep(5 * time.Minute)
		st.wantOnceEach(1)
	})
}
