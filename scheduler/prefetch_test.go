package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
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

// dequeuer dequeues jobs of a queue as asynq does.
type dequeuer struct {
	*prefetcher
	queue    string
	leaseEnd int64 // the Unix second at which the jobs' leases end
}

func newDequeuer(t *testing.T, rdb redis.UniversalClient, slots int) dequeuer {
	t.Helper()
	takeOut(t, rdb)
	s, err := NewServer(rdb, Rules{RuleFor: func(context.Context, *asynq.Task) (Rule, error) { return Rule{}, nil }}, asynq.Config{Concurrency: slots, Logger: silent{}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.stopFetching)
	return dequeuer{s.prefetcher, "default", time.Now().Add(asynqdb.LeaseTime).Unix()}
}

// ask returns the next job's ID, or "" if there is none.
func (a dequeuer) ask(ctx context.Context) (string, error) {
	job, err := a.dequeue(ctx, a.queue, a.leaseEnd)
	if errors.Is(err, redis.Nil) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return job.ID, nil
}

// end frees the slot of a job.
func (a dequeuer) end(id string) {
	ended := a.inFlight.get(job{Queue: "default", ID: id})
	a.inFlight.written(ended)
}

// take dequeues n jobs. All must be there, and no dequeue may fail.
func (a dequeuer) take(t *testing.T, n int) (ids []string) {
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

// TestPrefetch_AllFreeSlots: one round trip fetches a job for each free slot, first in first out,
// with all that asynq's own script does to each.
func TestPrefetch_AllFreeSlots(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		ctx := t.Context()
		script.New("asynq/dequeue").Load(ctx, rdb)
		want := addMany(t, rdb, 15)
		before := rdb.Time(ctx).Val()
		sent := &tap{is: func(redis.Cmder) bool { return true }}
		rdb.AddHook(sent.hook())
		a := newDequeuer(t, rdb, 10)
		got := a.take(t, 10)
		if !slices.Equal(got, want[:10]) {
			t.Errorf("order %v, want %v", got, want[:10])
		}
		if n := sent.n.Load(); n != 1 {
			t.Errorf("%d round trips for 10 jobs and 10 free slots, want 1", n)
		}
		a.end(want[3])
		a.end(want[3]) // a job that ends twice frees one slot
		a.end(want[7])
		if got := a.take(t, 2); !slices.Equal(got, want[10:12]) || sent.n.Load() != 2 {
			t.Errorf("for two free slots: %v in %d round trips, want %v in 1", got, sent.n.Load()-1, want[10:12])
		}
		active := rdb.LRange(ctx, asynqdb.Key("default", asynqdb.Active), 0, -1).Val()
		slices.Reverse(active)
		if !slices.Equal(active, want[:12]) {
			t.Errorf("active: %v, want %v", active, want[:12])
		}
		after := rdb.Time(ctx).Val()
		for _, id := range want[:12] {
			ends := time.Unix(int64(rdb.ZScore(ctx, asynqdb.Key("default", asynqdb.Lease), id).Val()), 0)
			state := rdb.HGet(ctx, asynqdb.Hash("default", id), "state").Val()
			begun := ends.Add(-asynqdb.LeaseTime)
			if state != "active" || begun.Before(before.Truncate(time.Second)) || begun.After(after) {
				t.Errorf("%s is %s, and its lease began at %s, want between %s and %s", id, state, begun, before, after)
			}
		}
		if queue, err := asynq.NewInspectorFromRedisClient(rdb).GetQueueInfo("default"); err != nil || queue.Active != 12 || queue.Pending != 3 {
			t.Errorf("queue: %+v, %v; want 12 active and 3 pending", queue, err)
		}
	})
}

// drop loses the replies to the next commands of a kind, after Redis has run them.
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

// TestPrefetch_LostReply: the reply with ten jobs is lost, some times in a row: all jobs run, once
// and in order, and none waits for the end of a lease.
func TestPrefetch_LostReply(t *testing.T) {
	for _, times := range []int64{1, 2, 5} {
		t.Run(fmt.Sprint(times, " lost"), func(t *testing.T) {
			redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
				want := addMany(t, rdb, 12)
				lossy := &drop{is: isDequeue}
				rdb.AddHook(redistest.Hook(lossy.around))
				lossy.left.Store(times)
				a, b := newDequeuer(t, rdb, 10), newDequeuer(t, rdb, 10)
				b.leaseEnd = a.leaseEnd // so that the time does not distinguish their jobs
				for range times {
					if _, err := a.ask(t.Context()); err == nil {
						t.Fatal("no reply was lost")
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

// TestPrefetch_LateReply: jobs whose reply is half a lease old do not start: they go back.
func TestPrefetch_LateReply(t *testing.T) {
	virtual(t, settings{config: asynq.Config{Concurrency: 4}, limits: []throttle.Limit{perMinute(6000, 100)}}, func(t *testing.T, st *stack) {
		time.Sleep(time.Minute)
		st.toQueues.slow.Store(int64(20 * time.Second))
		want := addMany(t, redistest.MiniClient(t, st.queueServer), 10)
		time.Sleep(3 * time.Minute)
		st.wantRuns(0)
		st.toQueues.slow.Store(0)
		time.Sleep(3 * time.Minute)
		st.wantOnceEach(len(want))
		st.wantNothingLeft()
	})
}

// setSlots makes a server fetch as if it had so many slots.
func (a *prefetcher) setSlots(slots int) {
	a.lock <- struct{}{}
	defer func() { <-a.lock }()
	a.slots = slots
}

// fetch makes a server of one slot fetch n jobs at once. All but the first wait in the server,
// whose handler must not return meanwhile.
func (st *stack) fetch(n int) (jobs []string) {
	st.must(st.tasks.PauseQueue("default"))
	jobs = st.enqueueN(n, "")
	st.server.prefetcher.setSlots(100)
	st.must(st.tasks.UnpauseQueue("default"))
	for len(st.ran()) == 0 {
		time.Sleep(time.Millisecond)
	}
	if active := st.rdb.LLen(st.t.Context(), asynqdb.Key("default", asynqdb.Active)).Val(); int(active) != n {
		st.t.Fatalf("%d jobs are active, want all %d: the test shows nothing", active, n)
	}
	return jobs
}

// TestPrefetch_GivesBack: ten jobs wait in a server, which is stopped or drained, or does not start them for
// a second. Nothing is lost, their order is kept, no crash is counted, and another server runs them at
// once.
func TestPrefetch_GivesBack(t *testing.T) {
	slow(t)
	for name, end := range map[string]func(st *stack){
		"Stop":     func(st *stack) { st.server.Stop() },
		"Shutdown": func(st *stack) { go st.server.Shutdown(); synctest.Wait() },
		"drain":    func(st *stack) { st.server.setDrained(true) },
		"a second": func(*stack) { time.Sleep(startWithin + time.Millisecond) },
	} {
		t.Run(name, func(t *testing.T) {
			gate := make(chan struct{})
			s := settings{
				config: asynq.Config{Concurrency: 1, ShutdownTimeout: time.Minute}, limits: []throttle.Limit{perMinute(6000, 100)},
				handle: func(context.Context, *asynq.Task) error { <-gate; return nil },
			}
			virtual(t, s, func(t *testing.T, st *stack) {
				gate = make(chan struct{})
				want := st.fetch(11)
				end(st)
				for _, id := range want[1:] {
					job := st.rdb.HGetAll(t.Context(), asynqdb.Hash("default", id)).Val()
					if job["state"] != "pending" || job["crashes"] != "" {
						t.Errorf("%s: %v, want it pending and no crash", id, job)
					}
				}
				if leases := st.rdb.ZRange(t.Context(), asynqdb.Key("default", asynqdb.Lease), 0, -1).Val(); !slices.Equal(leases, want[:1]) {
					t.Errorf("leases of %v, want of %v", leases, want[:1])
				}
				s.handle = nil
				second := st.beside(s)
				time.Sleep(500 * time.Millisecond)
				second.wantOrder(want[1:])
				close(gate)
				time.Sleep(5 * time.Second)
				st.wantOnceEach(1)
				st.wantNothingLeft()
			})
		})
	}
}

// TestPrefetch_JobsChangedMeanwhile: an operator's changes to jobs that are fetched and have not
// started apply as if they ran: jobs that are no longer the server's are not given back.
func TestPrefetch_JobsChangedMeanwhile(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		ctx := t.Context()
		want := addMany(t, rdb, 6)
		a := newDequeuer(t, rdb, 10)
		a.take(t, 1)
		rdb.LRem(ctx, asynqdb.Key("default", asynqdb.Active), 0, want[1]) // as asynq's recoverer does
		rdb.ZRem(ctx, asynqdb.Key("default", asynqdb.Lease), want[1])
		rdb.HSet(ctx, asynqdb.Hash("default", want[1]), "state", "retry")
		rdb.ZAdd(ctx, asynqdb.Key("default", asynqdb.Retry), redisZ(time.Now(), want[1]))
		rdb.HSet(ctx, asynqdb.Hash("default", want[2]), "pending_since", "1") // fetched by another server
		rdb.Del(ctx, asynqdb.Hash("default", want[3]))
		a.stop()
		pending := rdb.LRange(ctx, asynqdb.Key("default", asynqdb.Pending), 0, -1).Val()
		slices.Reverse(pending)
		if !slices.Equal(pending, want[4:]) {
			t.Errorf("pending: %v, want %v", pending, want[4:])
		}
	})
}

// TestPrefetch_QueueShares: queues with a backlog have their shares of the jobs that start, and
// with strict priority the first queue has all. By weight one fetch does not fill all slots.
func TestPrefetch_QueueShares(t *testing.T) {
	slow(t)
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
		if got := newPrefetcher(&Server{}, config).fetchSize(); got != most {
			t.Errorf("%d slots of 10 are filled at once, want %d", got, most)
		}
		t.Run(fmt.Sprint("strict ", config.StrictPriority), func(t *testing.T) {
			virtual(t, settings{
				config: config, limits: []throttle.Limit{perMinute(6000, 100)},
				rule:   always(Rule{}),
				handle: takes(10 * time.Millisecond),
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
				for _, r := range st.ran()[20:2020] { // the queues are unpaused during the first
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

// TestPrefetch_LargeBacklog: a server goes through a backlog of jobs that wait for permits in 30 %
// of Redis's time, and the limit is used in full meanwhile.
func TestPrefetch_LargeBacklog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, rdb := redistest.Mini(t)
		var toRedis wire
		rdb.AddHook(redistest.Hook(toRedis.around))
		limit := funnel("api", 100, 10)
		st := start(t, rdb, settings{config: asynq.Config{Concurrency: 10}, limits: []throttle.Limit{limit}})
		for range 2000 {
			st.enqueue(asynq.NewTask("job", nil))
		}
		toRedis.slow.Store(int64(time.Millisecond)) // ten jobs take three calls
		time.Sleep(time.Second)
		st.limiter.mu.Lock()
		denied := len(st.limiter.denials)
		st.limiter.mu.Unlock()
		if most := 1000; denied > most {
			t.Errorf("%d jobs were denied in a second, want at most %d", denied, most)
		}
		time.Sleep(4 * time.Second)
		if ran := len(st.ran()); ran < 500 {
			t.Errorf("%d jobs ran in 5 s, want 500 by the limit", ran)
		}
		wantNotOver(t, limit, time.Time{}, st)
	})
}
