package scheduler

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/script"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/throttle"
)

// asker asks a queue for jobs as asynq does.
type asker struct {
	*prefetcher
	queue    string
	leaseEnd int64 // the Unix second at which the jobs' leases end
}

func newAsker(t *testing.T, rdb redis.UniversalClient, slots int) asker {
	takeOut(rdb)
	a := newPrefetcher(asynqdb.New(rdb), asynq.Config{Concurrency: slots}, openGate{}, &inFlight{})
	t.Cleanup(a.stop)
	return asker{a, "default", time.Now().Add(asynqdb.LeaseTime).Unix()}
}

// openGate lets all jobs through.
type openGate struct{}

func (openGate) acquireAll(_ context.Context, b batch) []*attempt { return b.jobs }
func (openGate) releaseUnused(*attempt)                           {}

func (openGate) noteFetch(context.Context, string, time.Time, error) {}

// ask returns the next job's ID, or nothing where there is none.
func (a asker) ask(ctx context.Context) (string, error) {
	job, err := a.dequeue(ctx, a.queue, a.leaseEnd, time.Time{})
	if errors.Is(err, redis.Nil) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return job.ID, nil
}

// end frees the slot of a job.
func (a asker) end(id string) {
	a.inFlight.freeSlot(a.inFlight.get(job{Queue: "default", ID: id}))
}

// take asks for n jobs, all of which must be there, and be it without an error.
func (a asker) take(t *testing.T, n int) (ids []string) {
	t.Helper()
	for range n {
		id, err := a.ask(t.Context())
		if err != nil || id == "" {
			t.Fatalf("job %d of %d: %q, %v", len(ids)+1, n, id, err)
		}
		ids = append(ids, id)
	}
	return ids
}

// addMany enqueues jobs with asynq's own client, and returns their IDs in order.
func addMany(t *testing.T, rdb redis.UniversalClient, n int, opts ...asynq.Option) (ids []string) {
	t.Helper()
	for i := range n {
		ids = append(ids, add(t, rdb, fmt.Sprintf("job-%03d", i), opts...))
	}
	return ids
}

// A commandCount counts the commands that are sent.
type commandCount struct{ n atomic.Int64 }

func (c *commandCount) around(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	c.n.Add(1)
	return next(ctx, cmd)
}

// One round trip brings a job for each free slot, first come first, with all that
// asynq's own script does to each.
func TestPrefetch_AllFreeSlots(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		ctx := t.Context()
		script.New("asynq/dequeue").Load(ctx, rdb)
		want := addMany(t, rdb, 15)
		var sent commandCount
		rdb.AddHook(redistest.Hook(sent.around))
		a := newAsker(t, rdb, 10)
		got := a.take(t, 10)
		if !slices.Equal(got, want[:10]) {
			t.Errorf("order %v, want %v", got, want[:10])
		}
		if n := sent.n.Load(); n != 1 {
			t.Errorf("%d round trips for 10 jobs and 10 free slots, want 1", n)
		}
		a.end(want[3])
		a.end(want[3]) // what ends twice frees one slot
		a.end(want[7])
		if got := a.take(t, 2); !slices.Equal(got, want[10:12]) || sent.n.Load() != 2 {
			t.Errorf("for two free slots: %v in %d round trips, want %v in 1", got, sent.n.Load()-1, want[10:12])
		}
		active := rdb.LRange(ctx, asynqdb.Key("default", asynqdb.Active), 0, -1).Val()
		slices.Reverse(active)
		if !slices.Equal(active, want[:12]) {
			t.Errorf("active: %v, want %v", active, want[:12])
		}
		for _, id := range want[:12] {
			ends := rdb.ZScore(ctx, asynqdb.Key("default", asynqdb.Lease), id).Val()
			state := rdb.HGet(ctx, asynqdb.Hash("default", id), "state").Val()
			if left := time.Until(time.Unix(int64(ends), 0)); state != "active" || left < 25*time.Second || left > asynqdb.LeaseTime {
				t.Errorf("%s is %s, and its lease ends in %s", id, state, left)
			}
		}
		if queue, err := asynq.NewInspectorFromRedisClient(rdb).GetQueueInfo("default"); err != nil || queue.Active != 12 || queue.Pending != 3 {
			t.Errorf("queue: %+v, %v; want 12 active and 3 pending", queue, err)
		}
	})
}

// A paused queue gives nothing, an unpaused one goes on, and an empty one gives nothing.
func TestPrefetch_PausedQueue(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		tasks := asynq.NewInspectorFromRedisClient(rdb)
		want := addMany(t, rdb, 3)
		a := newAsker(t, rdb, 10)
		for _, change := range []struct {
			do   func(queue string) error
			want []string
		}{{tasks.PauseQueue, nil}, {tasks.UnpauseQueue, want}, {tasks.PauseQueue, nil}, {tasks.UnpauseQueue, nil}} {
			if err := change.do("default"); err != nil {
				t.Fatal(err)
			}
			if got := a.take(t, len(change.want)); !slices.Equal(got, change.want) {
				t.Errorf("%v, want %v", got, change.want)
			}
			if id, err := a.ask(t.Context()); id != "" || err != nil {
				t.Errorf("then %q, %v; want nothing", id, err)
			}
		}
	})
}

// A job whose hash is gone, has no message, or is none at all is dropped, and the
// others are not.
func TestPrefetch_DropsJobsWithoutMessage(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		ctx := t.Context()
		want := addMany(t, rdb, 6)
		rdb.Del(ctx, asynqdb.Hash("default", want[0]))
		rdb.HDel(ctx, asynqdb.Hash("default", want[2]), "msg")
		rdb.Del(ctx, asynqdb.Hash("default", want[4]))
		rdb.Set(ctx, asynqdb.Hash("default", want[4]), "no hash", 0)
		a := newAsker(t, rdb, 10)
		if got := a.take(t, 3); !slices.Equal(got, []string{want[1], want[3], want[5]}) {
			t.Errorf("got %v of %v, want each second", got, want)
		}
		if id, err := a.ask(ctx); id != "" || err != nil {
			t.Errorf("then %q, %v; want nothing", id, err)
		}
		if n := rdb.LLen(ctx, asynqdb.Key("default", asynqdb.Active)).Val() + rdb.ZCard(ctx, asynqdb.Key("default", asynqdb.Lease)).Val(); n != 6 {
			t.Errorf("active and leases are %d, want 3 each", n)
		}
		for i := range 3 {
			if rdb.Exists(ctx, asynqdb.Hash("default", want[2*i])).Val() != 0 {
				t.Errorf("job %d has a hash: its ID is not free", 2*i)
			}
		}
	})
}

// A drop loses the answers to the next commands of a kind, after Redis has done them.
type drop struct {
	left atomic.Int64
	is   func(cmd redis.Cmder) bool
}

func (d *drop) around(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	err := next(ctx, cmd)
	if d.is(cmd) && !redis.HasErrorPrefix(err, "NOSCRIPT") && d.left.Add(-1) >= 0 {
		cmd.SetErr(syscall.ECONNRESET)
		return syscall.ECONNRESET
	}
	return err
}

// isDequeue reports whether a command is lua/asynq/dequeue.lua.
func isDequeue(cmd redis.Cmder) bool {
	args := cmd.Args()
	return strings.HasPrefix(cmd.Name(), "eval") && len(args) == 14 && strings.HasSuffix(fmt.Sprint(args[3]), ":pending")
}

// The answer that brings ten jobs is lost, some times in a row: all run, once and in
// order, and none waits for the end of a lease.
func TestPrefetch_LostReply(t *testing.T) {
	for _, times := range []int64{1, 2, 5} {
		t.Run(fmt.Sprint(times, " lost"), func(t *testing.T) {
			redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
				want := addMany(t, rdb, 12)
				lossy := &drop{is: isDequeue}
				rdb.AddHook(redistest.Hook(lossy.around))
				lossy.left.Store(times)
				a, b := newAsker(t, rdb, 10), newAsker(t, rdb, 10)
				b.leaseEnd = a.leaseEnd // so the time does not tell their jobs apart
				for range times {
					if _, err := a.ask(t.Context()); err == nil {
						t.Fatal("no answer was lost")
					}
				}
				if id, err := b.ask(t.Context()); id != want[10] || err != nil {
					t.Errorf("another server gets %q, %v; want %s", id, err, want[10])
				}
				if got := a.take(t, 10); !slices.Equal(got, want[:10]) {
					t.Errorf("got %v, want %v", got, want[:10])
				}
				if got := b.take(t, 1); got[0] != want[11] {
					t.Errorf("another server gets %v, want %s", got, want[11])
				}
				if id, err := a.ask(t.Context()); id != "" || err != nil {
					t.Errorf("then %q, %v; want nothing", id, err)
				}
			})
		})
	}
}

// The connection breaks before the answer: go-redis repeats the call by itself, and gets
// the jobs that the first has taken.
func TestPrefetch_BrokenConnection(t *testing.T) {
	rdb := redistest.Real(t)
	script.New("asynq/dequeue").Load(t.Context(), rdb)
	want := addMany(t, rdb, 20)
	var broken atomic.Bool
	options := *rdb.(*redis.Client).Options()
	options.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		return &breaking{Conn: conn, broken: &broken}, err
	}
	flaky := redis.NewClient(&options)
	t.Cleanup(func() { _ = flaky.Close() })
	a := newAsker(t, flaky, 10)
	if got := a.take(t, 10); !slices.Equal(got, want[:10]) {
		t.Errorf("got %v, want %v", got, want[:10])
	}
	if !broken.Load() {
		t.Error("no connection broke: the test shows nothing")
	}
	if n := rdb.LLen(t.Context(), asynqdb.Key("default", asynqdb.Active)).Val(); n != 10 {
		t.Errorf("%d jobs are active, want 10", n)
	}
}

// breaking is a connection that breaks once, when Redis has answered a dequeue.
type breaking struct {
	net.Conn
	broken *atomic.Bool
	breaks bool
}

func (c *breaking) Write(b []byte) (int, error) {
	if strings.Contains(string(b), script.New("asynq/dequeue").Hash()) && c.broken.CompareAndSwap(false, true) {
		c.breaks = true
	}
	return c.Conn.Write(b)
}

func (c *breaking) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.breaks {
		_ = c.Conn.Close()
		return 0, syscall.ECONNRESET
	}
	return n, err
}

// An answer that is half a lease old brings nothing to run: its jobs go back.
func TestPrefetch_LateReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, rdb := redistest.Mini(t)
		var toRedis wire
		rdb.AddHook(redistest.Hook(toRedis.around))
		st := start(t, rdb, settings{config: asynq.Config{Concurrency: 4}, limits: []throttle.Limit{perMinute(6000, 100)}})
		time.Sleep(time.Minute)
		toRedis.slow.Store(int64(20 * time.Second))
		want := addMany(t, redistest.MiniClient(t, m), 10)
		time.Sleep(3 * time.Minute)
		if n := len(st.ran()); n != 0 {
			t.Errorf("%d ran", n)
		}
		toRedis.slow.Store(0)
		time.Sleep(3 * time.Minute)
		st.wantOnceEach(len(want))
		for _, id := range want {
			if info := st.info(id); info != nil {
				t.Errorf("job: %+v, want it done", info)
			}
		}
	})
}

// believe has a server ask as if it had so many slots.
func (a *prefetcher) believe(slots int) {
	a.lock <- struct{}{}
	defer func() { <-a.lock }()
	a.slots = slots
}

// crowded is a server of one slot that believes to have many, whose handler holds on to
// its job until it is let go: so all others that it has taken wait.
func crowded(t *testing.T, rdb redis.UniversalClient, n int) (st *stack, want []string, letGo func()) {
	gate := make(chan struct{})
	st = start(t, rdb, settings{
		config: asynq.Config{Concurrency: 1, ShutdownTimeout: time.Minute}, limits: []throttle.Limit{perMinute(6000, 100)},
		handle: func(_ context.Context, _ *asynq.Task) error { <-gate; return nil },
	})
	st.must(st.tasks.PauseQueue("default"))
	want = addMany(t, rdb, n)
	st.server.redis.prefetcher.believe(100)
	st.must(st.tasks.UnpauseQueue("default"))
	for len(st.ran()) == 0 {
		time.Sleep(time.Millisecond)
	}
	return st, want, func() { close(gate) }
}

// Ten jobs wait in a server, which is shut down or stopped, or does nothing about them
// for a second: nothing is lost, their order is kept, no crash is counted, and another
// server runs them at once.
func TestPrefetch_GivesBack(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	for _, test := range []struct {
		name string
		end  func(st *stack)
	}{
		{"Stop", func(st *stack) { st.server.Stop() }},
		{"Shutdown", func(st *stack) { go st.server.Shutdown(); synctest.Wait() }},
		{"Stop and Shutdown", func(st *stack) { st.server.Stop(); go st.server.Shutdown(); synctest.Wait() }},
		{"a second", func(*stack) { time.Sleep(startWithin + time.Millisecond) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, rdb := redistest.Mini(t)
				st, want, letGo := crowded(t, rdb, 11)
				ctx := t.Context()
				if active := rdb.LLen(ctx, asynqdb.Key("default", asynqdb.Active)).Val(); active != 11 {
					letGo()
					t.Fatalf("%d are active, want all 11: the test shows nothing", active)
				}
				test.end(st)
				for _, id := range want[1:] {
					job := rdb.HGetAll(ctx, asynqdb.Hash("default", id)).Val()
					if job["state"] != "pending" || job["crashes"] != "" {
						t.Errorf("%s: %v, want it pending and no crash", id, job)
					}
				}
				if leases := rdb.ZRange(ctx, asynqdb.Key("default", asynqdb.Lease), 0, -1).Val(); !slices.Equal(leases, want[:1]) {
					t.Errorf("leases of %v, want of %v", leases, want[:1])
				}
				second := start(t, redistest.MiniClient(t, m), settings{config: asynq.Config{Concurrency: 1}, limits: []throttle.Limit{perMinute(6000, 100)}})
				time.Sleep(500 * time.Millisecond)
				var got []string
				for _, r := range second.ran() {
					got = append(got, r.id)
				}
				if !slices.Equal(got, want[1:]) {
					t.Errorf("another server runs %v, want %v", got, want[1:])
				}
				letGo()
				time.Sleep(5 * time.Second)
				st.wantOnceEach(1)
				if queue, err := st.tasks.GetQueueInfo("default"); err != nil || queue.Size != 0 || queue.FailedTotal != 0 {
					t.Errorf("queue: %+v, %v; want it empty", queue, err)
				}
			})
		})
	}
}

// Jobs that could not be given back, since Redis was away, are when it is there again.
func TestPrefetch_GivesBackAfterOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, rdb := redistest.Mini(t)
		var toRedis wire
		rdb.AddHook(redistest.Hook(toRedis.around))
		st, want, letGo := crowded(t, rdb, 11)
		toRedis.cut.Store(true)
		time.Sleep(10 * time.Second)
		st.server.redis.prefetcher.stop()
		toRedis.cut.Store(false)
		time.Sleep(2 * time.Second)
		second := start(t, redistest.MiniClient(t, m), settings{config: asynq.Config{Concurrency: 1}, limits: []throttle.Limit{perMinute(6000, 100)}})
		time.Sleep(2 * time.Second)
		second.wantOnceEach(10)
		for _, id := range want[1:] {
			if info := st.info(id); info != nil {
				t.Errorf("job: %+v, want it done", info)
			}
		}
		letGo()
	})
}

// A process that is killed with jobs that it has taken and not begun: they come back like
// those that it had begun.
func TestPrefetch_Killed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := redistest.Mini(t)
		s := settings{config: asynq.Config{Concurrency: 1}, limits: []throttle.Limit{perMinute(6000, 100)}}
		p := startProcess(t, m, s, func(p *process) error { return p.die() })
		p.server.redis.prefetcher.believe(100)
		m2 := redistest.MiniClient(t, m)
		p.must(p.tasks.PauseQueue("default"))
		want := addMany(t, m2, 11, asynq.MaxRetry(0))
		p.must(p.tasks.UnpauseQueue("default"))
		time.Sleep(5 * time.Second)
		if active := m2.LLen(t.Context(), asynqdb.Key("default", asynqdb.Active)).Val(); active != 11 {
			t.Fatalf("%d are active, want all 11: the test shows nothing", active)
		}
		second := start(t, m2, s)
		time.Sleep(36 * time.Second)
		second.wantOnceEach(len(want))
	})
}

// The operator's changes to jobs that are taken and not begun hit them as if they ran:
// what is not the call's any more is not given back.
func TestPrefetch_JobsChangedMeanwhile(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		ctx := t.Context()
		want := addMany(t, rdb, 6)
		a := newAsker(t, rdb, 10)
		a.take(t, 1)
		rdb.LRem(ctx, asynqdb.Key("default", asynqdb.Active), 0, want[1]) // as asynq's recoverer
		rdb.ZRem(ctx, asynqdb.Key("default", asynqdb.Lease), want[1])
		rdb.HSet(ctx, asynqdb.Hash("default", want[1]), "state", "retry")
		rdb.ZAdd(ctx, asynqdb.Key("default", asynqdb.Retry), redisZ(time.Now(), want[1]))
		rdb.HSet(ctx, asynqdb.Hash("default", want[2]), "pending_since", "1") // taken by another
		for _, key := range []string{"t:" + want[3]} {
			rdb.Del(ctx, asynqdb.Key("default", key))
		}
		a.stop()
		pending := rdb.LRange(ctx, asynqdb.Key("default", asynqdb.Pending), 0, -1).Val()
		slices.Reverse(pending)
		if !slices.Equal(pending, want[4:]) {
			t.Errorf("pending: %v, want %v", pending, want[4:])
		}
	})
}

// Whatever becomes of jobs, their slots are known to be free when they are.
func TestInFlight_FreeSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, rdb := redistest.Mini(t)
		base, end := context.WithCancel(context.Background())
		st := start(t, rdb, settings{
			config: asynq.Config{Concurrency: 6, BaseContext: func() context.Context { return base }, RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return time.Second }},
			limits: []throttle.Limit{perMinute(600, 1)},
			handle: func(ctx context.Context, task *asynq.Task) error {
				switch string(task.Payload()) {
				case "fails":
					return errors.New("failed")
				case "panics":
					panic("panic")
				case "hangs":
					<-ctx.Done()
					time.Sleep(time.Minute)
				case "later":
					if n, _ := asynq.GetRetryCount(ctx); n == 0 {
						return RetryAfter(time.Second)
					}
				}
				return nil
			},
		})
		for range 5 {
			for _, kind := range []string{"done", "fails", "panics", "hangs"} {
				st.enqueue(asynq.NewTask("job", []byte(kind)), asynq.MaxRetry(1), asynq.Timeout(3*time.Second))
			}
		}
		most := 0
		for range 600 {
			time.Sleep(100 * time.Millisecond)
			most = max(most, st.server.inFlight.busy())
		}
		if most > 6 {
			t.Errorf("%d jobs were in hand at once, of 6 slots", most)
		}
		if n := st.server.inFlight.busy(); n != 0 {
			t.Errorf("%d jobs are in hand when all have ended", n)
		}
		end() // now no job reaches a handler
		for range 5 {
			st.enqueue(asynq.NewTask("job", nil), asynq.MaxRetry(1))
		}
		time.Sleep(30 * time.Second)
		if n := st.server.inFlight.busy(); n != 0 {
			t.Errorf("%d jobs are in hand that reached no handler", n)
		}
		if queue, err := st.tasks.GetQueueInfo("default"); err != nil || queue.Active != 0 {
			t.Errorf("queue: %+v, %v; want nothing active", queue, err)
		}
	})
}

// Queues that are all full have their shares of the jobs that are begun, and in
// strict priority the first has all. By weight one draw does not fill all slots.
func TestPrefetch_QueueShares(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	queues := map[string]struct{ weight, jobs, begun, off int }{ // off is six standard deviations
		"a": {6, 1500, 1200, 210}, "b": {3, 900, 600, 200}, "c": {1, 400, 200, 130},
	}
	config := asynq.Config{Concurrency: 10, Queues: map[string]int{}}
	for queue, q := range queues {
		config.Queues[queue] = q.weight
	}
	for _, config.StrictPriority = range []bool{false, true} {
		most := 4
		if config.StrictPriority {
			most = 10
		}
		if got := newPrefetcher(asynqdb.DB{}, config, openGate{}, &inFlight{}).freeSlots(); got != most {
			t.Errorf("%d slots of 10 are filled at once, want %d", got, most)
		}
		t.Run(fmt.Sprint("strict ", config.StrictPriority), func(t *testing.T) {
			virtual(t, settings{
				config: config, limits: []throttle.Limit{perMinute(6000, 100)},
				rule:   func(*asynq.Task) (Rule, error) { return Rule{}, nil },
				handle: func(context.Context, *asynq.Task) error { time.Sleep(10 * time.Millisecond); return nil },
			}, func(t *testing.T, st *stack) {
				for queue, q := range queues {
					st.must(st.tasks.PauseQueue(queue))
					for i := range q.jobs {
						st.enqueue(asynq.NewTask("job", nil), asynq.Queue(queue), asynq.TaskID(queue+strconv.Itoa(i)))
					}
				}
				for queue := range queues {
					st.must(st.tasks.UnpauseQueue(queue))
				}
				time.Sleep(10 * time.Second)
				st.wantOnceEach(2800)
				share := map[string]int{}
				for _, r := range st.ran()[20:2020] { // in the first they are unpaused
					share[r.id[:1]]++
				}
				if config.StrictPriority {
					if share["a"] < 1470 || share["b"] < 500 {
						t.Errorf("shares %v, want all of a, then of b", share)
					}
					return
				}
				for queue, q := range queues {
					if got := share[queue]; got < q.begun-q.off || got > q.begun+q.off {
						t.Errorf("%s has %d of 2000 jobs, want %d", queue, got, q.begun)
					}
				}
			})
		})
	}
}
