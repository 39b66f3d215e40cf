package scheduler

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
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

// counter is a number that handlers share.
type counter struct{ n atomic.Int32 }

func (c *counter) add(n int32) int32 { return c.n.Add(n) }
func (c *counter) get() int32        { return c.n.Load() }

func (c *counter) atLeast(n int32) {
	for old := c.n.Load(); old < n && !c.n.CompareAndSwap(old, n); {
		old = c.n.Load()
	}
}

// A fuse ends a process at a command of its choice: neither that nor any later
// one reaches Redis or is answered.
type fuse struct {
	blows    func(cmd redis.Cmder) bool
	once     sync.Once
	blown    chan struct{}
	released chan struct{} // when the test ends
}

func newFuse(blows func(cmd redis.Cmder) bool) *fuse {
	return &fuse{blows: blows, blown: make(chan struct{}), released: make(chan struct{})}
}

func (f *fuse) DialHook(next redis.DialHook) redis.DialHook { return next }

func (f *fuse) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if isGreeting(cmds[0]) {
			return next(ctx, cmds)
		}
		return f.pass(func() error { return next(ctx, cmds) })
	}
}

func (f *fuse) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if isGreeting(cmd) {
			return next(ctx, cmd)
		}
		if f.blows(cmd) {
			f.once.Do(func() { close(f.blown) })
		}
		return f.pass(func() error { return next(ctx, cmd) })
	}
}

// dead reports whether the process has died.
func (f *fuse) dead() bool {
	select {
	case <-f.blown:
		return true
	default:
		return false
	}
}

func (f *fuse) pass(redis func() error) error {
	if f.dead() {
		<-f.released
		return errors.New("the process has died")
	}
	return redis()
}

// isGreeting reports whether a connection begins with a command. It tells nobody anything,
// and go-redis sends it with a subscriber's lock held: whoever had it wait would have
// another wait for that lock, for which no bubble's clock goes on.
func isGreeting(cmd redis.Cmder) bool { return cmd.Name() == "hello" || cmd.Name() == "client" }

// isPromote reports whether a command is lua/asynq/promote.lua of the queue "default".
func isPromote(cmd redis.Cmder) bool {
	args := cmd.Args()
	return strings.HasPrefix(cmd.Name(), "eval") && len(args) > 4 && fmt.Sprint(args[2]) == "3" &&
		fmt.Sprint(args[3]) == asynqdb.Key("default", asynqdb.Pending) && fmt.Sprint(args[4]) == asynqdb.Key("default", asynqdb.Retry)
}

// Was: the job came after an hour, its slot free all the while.
func deathsBeforePromote(t *testing.T) {
	t.Run("virtual time", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m, _ := redistest.Mini(t)
			died, ran := dieBeforePromote(t, 10*time.Second, func() redis.UniversalClient { return redistest.MiniClient(t, m) })
			if late := ran.Sub(died); late > 5*time.Second {
				t.Errorf("the job ran %s after the last death, want 5 s", late)
			}
		})
	})
	t.Run("redis", func(t *testing.T) {
		server := redistest.Run(t)
		dieBeforePromote(t, time.Minute, func() redis.UniversalClient {
			rdb := server.Client()
			t.Cleanup(func() { _ = rdb.Close() })
			return rdb
		})
	})
}

// dieBeforePromote has two of three processes die as they would promote a job
// that they have called, and returns when the last did and when the job ran.
func dieBeforePromote(t *testing.T, patience time.Duration, connect func() redis.UniversalClient) (died, ran time.Time) {
	t.Helper()
	limit := throttle.Limit{Name: "slot", Kind: throttle.Concurrency, Capacity: 1, Lease: time.Hour}
	jobs, handle := announcing(10)
	s := settings{config: quick, limits: []throttle.Limit{limit}, handle: handle}
	first, second := newFuse(isPromote), newFuse(isPromote)
	for _, f := range []*fuse{first, second} {
		rdb := connect()
		rdb.AddHook(f)
		start(t, rdb, s)
		t.Cleanup(func() { close(f.released) })
	}
	client := connect()
	slot := throttle.Need{Limit: "slot"}
	limiter := throttle.New(client, throttle.Options{})
	held, err := limiter.AllowAll(t.Context(), slot)
	if !held.OK() {
		t.Fatal(held, err)
	}
	if _, err := asynq.NewClientFromRedisClient(client).Enqueue(needing("")); err != nil {
		t.Fatal(err)
	}
	for client.ZCard(t.Context(), asynqdb.Key("default", asynqdb.Retry)).Val() == 0 {
		time.Sleep(10 * time.Millisecond)
	}
	if err := limiter.Free(t.Context(), held.Holder, slot); err != nil {
		t.Fatal(err)
	}
	for _, f := range []*fuse{first, second} {
		select {
		case <-f.blown:
		case <-time.After(patience):
			t.Fatal("a process does not promote the job")
		}
	}
	died = time.Now()
	start(t, connect(), s)
	select {
	case <-jobs:
	case <-time.After(patience):
		t.Fatal("the job does not run")
	}
	return died, time.Now()
}

// Was: 1,000 jobs took 3 m 34 s instead of 100 s.
func leaderLosesQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, limiter := redistest.Mini(t)
		m, queues := redistest.Mini(t)
		s := settings{config: quick, redis: limiter, limits: []throttle.Limit{funnel("api", 10, 10)}}
		var cut wire
		queues.AddHook(redistest.Hook(cut.around))
		leader := start(t, queues, s)
		began := time.Now()
		for i := range 1000 {
			leader.enqueue(needing(""), numbered("job", i))
		}
		time.Sleep(10 * time.Second)
		other := start(t, redistest.MiniClient(t, m), s)
		time.Sleep(10 * time.Second)
		cut.cut.Store(true)
		time.Sleep(100 * time.Second)
		cut.cut.Store(false)
		ran := append(leader.ran(), other.ran()...)
		last := time.Duration(0)
		seen := map[string]bool{}
		for _, r := range ran {
			last, seen[r.id] = max(last, r.at.Sub(began)), true
		}
		if len(seen) != 1000 || last > 105*time.Second {
			t.Errorf("%d jobs ran, the last after %s; want 1,000 within 105 s", len(seen), last)
		}
		if len(other.ran()) < 700 {
			t.Errorf("the other process ran %d jobs, want most: the first was not cut off", len(other.ran()))
		}
	})
}

// Was: 2 ran under concurrency 1.
func outlivedTimeout(t *testing.T) {
	var running, most, ended counter
	handle := func(context.Context, *asynq.Task) error {
		most.atLeast(running.add(1))
		time.Sleep(40 * time.Second)
		running.add(-1)
		ended.add(1)
		return nil
	}
	virtual(t, settings{config: quick, limits: []throttle.Limit{oneSlot}, handle: handle}, func(_ *testing.T, st *stack) {
		for range 3 {
			st.enqueue(needing(""), asynq.Timeout(5*time.Second))
		}
		time.Sleep(3 * time.Minute)
		if most.get() != 1 || ended.get() != 3 {
			t.Errorf("%d ran at once and %d to the end, want 1 and 3", most.get(), ended.get())
		}
	})
}

// Was: it killed 20 of 20 workers; with plain asynq 4.
func killer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, rdb := redistest.Mini(t)
		config := idle
		config.RetryDelayFunc = func(int, error, *asynq.Task) time.Duration { return time.Second }
		var killed counter
		if _, err := asynq.NewClientFromRedisClient(rdb).Enqueue(asynq.NewTask("job", nil), asynq.TaskID("killer"), asynq.MaxRetry(3)); err != nil {
			t.Fatal(err)
		}
		for range 10 {
			startProcess(t, m, settings{config: config, limits: []throttle.Limit{perMinute(60, 10)}}, func(p *process) error {
				killed.add(1)
				return p.die()
			})
			time.Sleep(3 * time.Minute)
		}
		if want := int32(4 + forgivenCrashes); killed.get() != want {
			t.Errorf("it killed %d workers, want %d: asynq's 4, and those that are forgiven", killed.get(), want)
		}
		info, err := asynq.NewInspectorFromRedisClient(rdb).GetTaskInfo("default", "killer")
		if err != nil || info.State != asynq.TaskStateArchived {
			t.Errorf("it is %+v, %v; want archived", info, err)
		}
	})
}
