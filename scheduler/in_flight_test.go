package scheduler

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/script"
	"github.com/headgate/headgate/internal/testutil/redistest"
)

// standstill is a Redis that does not run any command for a while. It runs the commands that it got
// meanwhile when it goes on, in the order in which they came. A client waits for a reply for 3 s, and
// sends a command four times.
type standstill struct {
	mu    sync.Mutex
	until time.Time
	sent  []func() // what Redis runs when it goes on
}

func (s *standstill) begin(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.until = time.Now().Add(d)
	time.AfterFunc(d, func() {
		s.mu.Lock()
		sent := s.sent
		s.sent = nil
		s.mu.Unlock()
		for _, run := range sent {
			run()
		}
	})
}

func (s *standstill) around(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	for range 4 {
		s.mu.Lock()
		left := time.Until(s.until)
		if left > 3*time.Second {
			s.sent = append(s.sent, func() { _ = next(context.Background(), redis.NewCmd(ctx, cmd.Args()...)) })
		}
		s.mu.Unlock()
		if left <= 3*time.Second {
			time.Sleep(left)
			return next(ctx, cmd)
		}
		time.Sleep(3 * time.Second)
	}
	cmd.SetErr(os.ErrDeadlineExceeded)
	return os.ErrDeadlineExceeded
}

// overlaps counts the handlers of each job that run at the same time.
type overlaps struct {
	mu      sync.Mutex
	running map[string]int
	begun   map[string]int
	twice   []string // jobs that ran twice at once
}

// enter notes that a handler begins, and returns the number of its attempt, from 1.
func (o *overlaps) enter(id string) (attempt int, leave func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.running == nil {
		o.running, o.begun = map[string]int{}, map[string]int{}
	}
	o.running[id]++
	o.begun[id]++
	if o.running[id] > 1 {
		o.twice = append(o.twice, id)
	}
	return o.begun[id], func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.running[id]--
	}
}

// check checks that each of n jobs has begun as often as it should, and never twice at once.
func (o *overlaps) check(t *testing.T, n, times int) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.twice) > 0 {
		t.Errorf("ran twice at once: %v", o.twice)
	}
	for id, begun := range o.begun {
		if begun != times {
			t.Errorf("%s began %d times, want %d", id, begun, times)
		}
	}
	if len(o.begun) != n {
		t.Errorf("%d jobs ran, want %d", len(o.begun), n)
	}
}

// secondAttemptRuns is a handler whose first attempt ends with err after a second, and whose second
// attempt runs for three minutes.
func (o *overlaps) secondAttemptRuns(err error) func(ctx context.Context, _ *asynq.Task) error {
	return func(ctx context.Context, _ *asynq.Task) error {
		id, _ := asynq.GetTaskID(ctx)
		attempt, leave := o.enter(id)
		defer leave()
		if attempt == 1 {
			time.Sleep(time.Second)
			return err
		}
		time.Sleep(3 * time.Minute)
		return nil
	}
}

// TestAttempt_StandingRedis: Redis stands still for 15 s while jobs fail. Their next attempts run for
// minutes, and no job runs twice at once.
func TestAttempt_StandingRedis(t *testing.T) {
	for name, err := range map[string]error{"failed": errors.New("failed"), "put back": RetryAfter(time.Second)} {
		t.Run(name, func(t *testing.T) {
			var still standstill
			var o overlaps
			virtual(t, settings{
				hooks: []redis.Hook{redistest.Hook(still.around)}, rule: always(Rule{}), handle: o.secondAttemptRuns(err),
				config: retrying(asynq.Config{Concurrency: 8}, time.Second),
			}, func(t *testing.T, st *stack) {
				for range 5 {
					st.enqueue(asynq.NewTask("job", nil))
				}
				time.Sleep(900 * time.Millisecond)
				still.begin(15 * time.Second)
				time.Sleep(100 * time.Second)
				st.enqueue(asynq.NewTask("job", nil))
				time.Sleep(6 * time.Minute)
				o.check(t, 6, 2)
			})
		})
	}
}

// TestAttempt_LostReplyOfItsEnd: Redis writes the end of an attempt, and the reply is lost. Neither
// asynq, which calls again, nor recovery changes anything about the next attempt.
func TestAttempt_LostReplyOfItsEnd(t *testing.T) {
	for name, err := range map[string]error{"failed": errors.New("failed"), "put back": RetryAfter(time.Second)} {
		t.Run(name, func(t *testing.T) {
			var o overlaps
			lost := map[string]bool{}
			var mu sync.Mutex
			lose := redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
				err := next(ctx, cmd)
				id := endedBy(cmd)
				mu.Lock()
				isFirst := id != "" && err == nil && !lost[id]
				if isFirst {
					lost[id] = true
				}
				mu.Unlock()
				if isFirst {
					time.Sleep(12 * time.Second)
					err = os.ErrDeadlineExceeded
					cmd.SetErr(err)
				}
				return err
			})
			virtual(t, settings{
				hooks: []redis.Hook{lose}, rule: always(Rule{}), handle: o.secondAttemptRuns(err), config: retrying(asynq.Config{Concurrency: 8}, time.Second),
			}, func(t *testing.T, st *stack) {
				for range 5 {
					st.enqueue(asynq.NewTask("job", nil))
				}
				time.Sleep(6 * time.Minute)
				o.check(t, 5, 2)
			})
		})
	}
}

// endedBy returns the ID of the job whose attempt a command ends, or "".
func endedBy(cmd redis.Cmder) string {
	if !strings.HasPrefix(cmd.Name(), "eval") {
		return ""
	}
	args := cmd.Args()
	n := args[2].(int)
	var keys []string
	for _, key := range args[3 : 3+n] {
		keys = append(keys, key.(string))
	}
	if c := asynqdb.Recognize(keys, args[3+n:]); c.EndsLease {
		return c.ID
	}
	return ""
}

// TestAttempt_BlockedHeartbeat: attempts end while asynq's heartbeat waits for Redis, and the jobs'
// next attempts begin at once. asynq extends the leases of these attempts.
func TestAttempt_BlockedHeartbeat(t *testing.T) {
	var o overlaps
	blocked := redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if len(cmd.Args()) > 1 && cmd.Name() == "zadd" && cmd.Args()[1] == "asynq:servers" {
			time.Sleep(3 * time.Second)
		}
		return next(ctx, cmd)
	})
	virtual(t, settings{
		hooks: []redis.Hook{blocked}, rule: always(Rule{}), handle: o.secondAttemptRuns(RetryAfter(0)), config: asynq.Config{Concurrency: 16},
	}, func(t *testing.T, st *stack) {
		for i := range 10 {
			st.enqueue(asynq.NewTask("job", nil), asynq.ProcessIn(time.Duration(i)*time.Second))
		}
		time.Sleep(8 * time.Minute)
		o.check(t, 10, 2)
	})
}

// TestAttempt_OneIDInTwoQueues: asynq tells its workers apart by the job's ID alone. Jobs of two
// queues with one ID run soon one after the other, each of them once, and without a crash.
func TestAttempt_OneIDInTwoQueues(t *testing.T) {
	const takes = 2 * time.Minute
	var o overlaps
	var began []time.Time
	handle := func(ctx context.Context, _ *asynq.Task) error {
		queue, _ := asynq.GetQueueName(ctx)
		_, leave := o.enter(queue)
		defer leave()
		began = append(began, time.Now())
		time.Sleep(takes)
		return nil
	}
	config := asynq.Config{Concurrency: 4, Queues: map[string]int{"one": 1, "two": 1}}
	virtual(t, settings{config: config, rule: always(Rule{}), handle: handle}, func(t *testing.T, st *stack) {
		for _, queue := range []string{"one", "two"} {
			st.enqueue(asynq.NewTask("job", nil), asynq.Queue(queue), asynq.TaskID("it"))
		}
		time.Sleep(takes + time.Minute)
		for _, queue := range []string{"one", "two"} {
			if crashes := st.rdb.HGet(t.Context(), asynqdb.Hash(queue, "it"), "crashes").Val(); crashes != "" {
				t.Errorf("%s crashes in queue %s, want none", crashes, queue)
			}
		}
		time.Sleep(3 * takes)
		if o.check(t, 2, 1); len(began) != 2 || began[1].Sub(began[0]) > takes+busyPause+2*time.Second {
			t.Errorf("began at %v, want one soon after the end of the other", began)
		}
	})
}

// TestAttempt_LostLease: another worker has a job that still runs here. The handler is canceled
// within a heartbeat, and what asynq writes about the attempt changes nothing.
func TestAttempt_LostLease(t *testing.T) {
	canceled := make(chan time.Duration, 1)
	handle := func(ctx context.Context, _ *asynq.Task) error {
		began := time.Now()
		<-ctx.Done()
		canceled <- time.Since(began)
		return ctx.Err()
	}
	var log journal
	virtual(t, settings{rule: always(Rule{}), handle: handle, log: log.logger()}, func(t *testing.T, st *stack) {
		st.enqueue(asynq.NewTask("job", nil), asynq.TaskID("it"))
		time.Sleep(10 * time.Second)
		hash := asynqdb.Hash("default", "it")
		st.must(st.rdb.HSet(t.Context(), hash, "pending_since", "another dequeue").Err())
		before := redistest.ContentsOf(t, st.rdb, asynqdb.Key("default", "*"))
		time.Sleep(10 * time.Second)
		select {
		case after := <-canceled:
			if after > 10*time.Second+2*heartbeat {
				t.Errorf("canceled %s after the lease was lost", after-10*time.Second)
			}
		default:
			t.Error("the handler was not canceled")
		}
		after := redistest.ContentsOf(t, st.rdb, asynqdb.Key("default", "*"))
		if fmt.Sprint(before) != fmt.Sprint(after) {
			t.Errorf("asynq has %v, want %v", after, before)
		}
		time.Sleep(2 * maxEnd)
		if log.times("has not returned") > 0 || log.times("was taken back") != 1 {
			t.Errorf("the log says more than that the job was taken back:\n%s", &log)
		}
	})
}

// loseDequeue makes a Redis that has lost its last writes of a job: the job is pending again, although a
// server has it.
func (st *stack) loseDequeue(id string) {
	ctx, key := st.t.Context(), func(name string) string { return asynqdb.Key("default", name) }
	st.must(st.rdb.LRem(ctx, key(asynqdb.Active), 0, id).Err())
	st.must(st.rdb.ZRem(ctx, key(asynqdb.Lease), id).Err())
	st.must(st.rdb.HSet(ctx, asynqdb.Hash("default", id), "state", "pending").Err())
	st.must(st.rdb.RPush(ctx, key(asynqdb.Pending), id).Err())
	setMarker(ctx, st.rdb, key(asynqdb.Marker))
}

// TestAttempt_LostDequeue: Redis crashes and loses its last writes, so a server fetches a job that it
// has. If the job waits for permits, its handler does not start. If the handler runs, it is canceled at
// once. The job then runs once more.
func TestAttempt_LostDequeue(t *testing.T) {
	t.Run("waits for permits", func(t *testing.T) {
		var asked atomic.Bool
		rule := func(*asynq.Task) (Rule, error) {
			if !asked.Swap(true) {
				time.Sleep(3 * time.Second)
			}
			return Rule{}, nil
		}
		virtual(t, settings{config: asynq.Config{Concurrency: 4}, rule: rule}, func(t *testing.T, st *stack) {
			id := st.enqueue(asynq.NewTask("job", nil))
			time.Sleep(time.Second)
			st.loseDequeue(id)
			time.Sleep(time.Minute)
			st.wantOnceEach(1)
			st.wantNothingLeft()
		})
	})
	t.Run("runs", func(t *testing.T) {
		var began []time.Time
		handle := func(ctx context.Context, _ *asynq.Task) error {
			if began = append(began, time.Now()); len(began) == 1 {
				<-ctx.Done()
			}
			return ctx.Err()
		}
		virtual(t, settings{config: asynq.Config{Concurrency: 4}, rule: always(Rule{}), handle: handle}, func(t *testing.T, st *stack) {
			id := st.enqueue(asynq.NewTask("job", nil))
			time.Sleep(heartbeat + 100*time.Millisecond) // the next heartbeat is 4.9 s away
			st.loseDequeue(id)
			lost := time.Now()
			time.Sleep(time.Minute)
			if len(began) != 2 || began[1].Sub(lost) > busyPause+2*time.Second {
				t.Errorf("began at %v, want twice: the second time soon after %v", began, lost)
			}
			st.wantNothingLeft()
		})
	})
}

// TestAttempt_OldCalls: a call of asynq's that belongs to an attempt which is over does nothing, even
// if the job has its next attempt in the same server.
func TestAttempt_OldCalls(t *testing.T) {
	var sent []any // the first call that writes an end, with the guard
	record := redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if args := cmd.Args(); cmd.Name() == "eval" && strings.HasPrefix(args[1].(string), script.Guard) && sent == nil {
			sent = slices.Clone(args)
		}
		return next(ctx, cmd)
	})
	var o overlaps
	virtual(t, settings{
		hooks: []redis.Hook{record}, rule: always(Rule{}), handle: o.secondAttemptRuns(errors.New("failed")), config: retrying(asynq.Config{Concurrency: 2}, time.Second),
	}, func(t *testing.T, st *stack) {
		st.enqueue(asynq.NewTask("job", nil), asynq.TaskID("it"))
		time.Sleep(20 * time.Second)
		text, n := strings.TrimPrefix(sent[1].(string), script.Guard), sent[2].(int)
		var keys []string
		for _, key := range sent[3 : 3+n-3] {
			keys = append(keys, key.(string))
		}
		args := slices.Clone(sent[3+n : len(sent)-2])
		msg := args[1].([]byte)
		for name, number := range map[string]int64{"the old attempt": 1, "no attempt": 0} {
			args[1] = asynqdb.WithTimes(msg, 1800+number*disabledOffset, number*disabledOffset)
			if err := st.server.redis.Eval(t.Context(), text, keys, args...).Err(); !errors.Is(err, asynqdb.ErrNotActive) {
				t.Errorf("a call of %s: %v, want %v", name, err, asynqdb.ErrNotActive)
			}
		}
		over, cancel := context.WithCancel(t.Context())
		cancel()
		args[1] = asynqdb.WithTimes(msg, 1800+2*disabledOffset, 2*disabledOffset)
		if err := st.server.redis.Eval(over, text, keys, args...).Err(); !errors.Is(err, context.Canceled) {
			t.Errorf("a call whose context has ended: %v, want %v", err, context.Canceled)
		}
		time.Sleep(5 * time.Minute)
		o.check(t, 1, 2)
	})
}

// TestAttempt_WorkerWithSlowClock: a put-back's reply is lost, and a worker whose clock is 27 s
// behind takes the job. Its lease ends 3 s after each heartbeat by this server's clock, and it keeps the job.
func TestAttempt_WorkerWithSlowClock(t *testing.T) {
	var lost sync.Once
	lose := redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		err := next(ctx, cmd)
		if endedBy(cmd) == "it" && err == nil {
			lost.Do(func() {
				err = os.ErrDeadlineExceeded
				cmd.SetErr(err)
			})
		}
		return err
	})
	virtual(t, settings{hooks: []redis.Hook{lose}, rule: always(Rule{}), handle: returns(RetryAfter(time.Hour))}, func(t *testing.T, st *stack) {
		st.enqueue(asynq.NewTask("job", nil), asynq.TaskID("it"))
		time.Sleep(time.Second)
		db := asynqdb.New(redistest.MiniClient(t, st.queueServer))
		st.server.Stop()
		st.must(st.tasks.RunTask("default", "it"))
		leaseEnd := func() int64 { return time.Now().Add(3 * time.Second).Unix() }
		d := asynqdb.NewDequeue("default", leaseEnd(), false)
		jobs, err := db.Dequeue(t.Context(), d, 1)
		if st.must(err); len(jobs) != 1 {
			t.Fatal("the other worker found no job")
		}
		for beats := range 24 {
			time.Sleep(heartbeat)
			if lost, err := db.ExtendLeases(t.Context(), "default", leaseEnd(), map[string]string{"it": d.Name}); err != nil || len(lost) > 0 {
				t.Fatalf("after %d heartbeats the job was taken away from its worker, or %v", beats, err)
			}
		}
	})
}

// TestAttempt_SlowEnd: a function of the program takes a second after the context of a running job
// has ended. The attempt counts as one failure, and the job does not run again before its retry.
func TestAttempt_SlowEnd(t *testing.T) {
	handle := func(ctx context.Context, _ *asynq.Task) error {
		<-ctx.Done()
		return ctx.Err()
	}
	config := asynq.Config{Concurrency: 4, RetryDelayFunc: func(int, error, *asynq.Task) time.Duration {
		time.Sleep(time.Second)
		return time.Hour
	}}
	for name, row := range map[string]struct {
		timeout time.Duration
		during  func(st *stack, id string)
	}{
		"timeout":  {3 * time.Second, func(*stack, string) {}},
		"canceled": {time.Hour, func(st *stack, id string) { st.must(st.tasks.CancelProcessing(id)) }},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, settings{config: config, rule: always(Rule{}), handle: handle}, func(t *testing.T, st *stack) {
				id := st.enqueue(asynq.NewTask("job", nil), asynq.Timeout(row.timeout))
				time.Sleep(2 * time.Second)
				row.during(st, id)
				time.Sleep(10 * time.Minute)
				info := st.wantJob(id, asynq.TaskStateRetry, "context")
				if st.wantRuns(1); info.Retried != 1 {
					t.Errorf("%d failures, want 1", info.Retried)
				}
				if n := st.server.inFlight.occupiedSlots(); n != 0 {
					t.Errorf("%d occupied slots, want none", n)
				}
			})
		})
	}
}

// TestInFlight_HeartbeatBetweenCalls: an attempt that ends while asynq's heartbeat waits for Redis stays
// in the registry until the heartbeat has made all its calls.
func TestInFlight_HeartbeatBetweenCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := &redisClient{s: &Server{}}
		f := &client.s.inFlight
		ended := client.heartbeat()
		a := &attempt{Job: asynqdb.Job{JobID: job{Queue: "default", ID: "it"}}}
		f.add(a)
		f.run(a, nil)
		f.leave(a)
		for range 5 {
			time.Sleep(goodbyeTime / 2)
			ended()
			time.Sleep(3 * goodbyeTime / 4) // the registry looks once meanwhile
			ended = client.heartbeat()
			time.Sleep(time.Second)
			if busy, _ := f.isBusy("it"); !busy {
				t.Fatal("the attempt has left while a heartbeat waits")
			}
		}
		ended()
		time.Sleep(2 * goodbyeTime)
		if busy, _ := f.isBusy("it"); busy {
			t.Error("the attempt stays")
		}
	})
}
