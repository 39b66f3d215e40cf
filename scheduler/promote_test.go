package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/internal/turns"
	"github.com/headgate/headgate/lua"
	"github.com/headgate/headgate/throttle"
)

// The layout that promote relies on, held against asynq's own client, server
// and inspector.
func TestPromoteMovesToTheHead(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		ctx := t.Context()
		p, tasks := promoter{rdb}, asynq.NewInspectorFromRedisClient(rdb)
		a, b, c := addDenied(t, p, "a"), addDenied(t, p, "b"), addDenied(t, p, "c")
		archived := addDenied(t, p, "archived")
		if err := tasks.ArchiveTask("default", archived.id); err != nil {
			t.Fatal(err)
		}
		newcomer := add(t, rdb, "newcomer")
		later := add(t, rdb, "later", asynq.ProcessIn(2*time.Hour))
		fates, err := p.promote(ctx, []job{a, b, newcomer, later, archived, {"default", "deleted"}})
		if err != nil {
			t.Fatal(err)
		}
		if want := []turns.Fate{turns.Moved, turns.Moved, turns.Pending, turns.Done, turns.Done, turns.Gone}; !slices.Equal(fates, want) {
			t.Errorf("a, b, newcomer, later, archived and deleted are %v, want %v", fates, want)
		}
		if fates, err = p.promote(ctx, []job{c, c}); err != nil || fates[1] != turns.Pending {
			t.Errorf("the second time c is %v, %v; want pending", fates, err)
		}
		for _, id := range []string{"a", "b", "c"} {
			info, err := tasks.GetTaskInfo("default", id)
			if err != nil || info.State != asynq.TaskStatePending {
				t.Errorf("%s: %+v, %v; want pending", id, info, err)
			}
		}
		info, err := tasks.GetQueueInfo("default")
		if err != nil || info.Pending != 4 || info.Retry != 0 || info.Scheduled != 1 || info.Latency <= 0 {
			t.Errorf("queue: %+v, %v; want 4 pending, 1 scheduled, some latency", info, err)
		}
		if got := order(t, rdb, 4); !slices.Equal(got, []string{"a", "b", "c", "newcomer"}) {
			t.Errorf("asynq's server runs %v, want a, b, c, newcomer", got)
		}
	})
}

// add enqueues a job with asynq's own client.
func add(t *testing.T, rdb redis.UniversalClient, id string, opts ...asynq.Option) job {
	t.Helper()
	_, err := asynq.NewClientFromRedisClient(rdb).Enqueue(asynq.NewTask("job", nil), append(opts, asynq.TaskID(id))...)
	if err != nil {
		t.Fatal(err)
	}
	return job{"default", id}
}

// addDenied is add of a job that was denied for an hour. No other is pending.
func addDenied(t *testing.T, p promoter, id string, opts ...asynq.Option) job {
	t.Helper()
	j := add(t, p.rdb, id, opts...)
	if err := p.deny(t.Context(), j, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	return j
}

// A job whose handler failed waits in the retry set as a denied one does. It
// waits for its backoff, and nothing of ours may cut that short.
func TestFailedJobsAreLeftAlone(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		ctx := t.Context()
		p := promoter{rdb}
		failed, denied := addDenied(t, p, "failed"), addDenied(t, p, "denied")
		rdb.ZAdd(ctx, "asynq:{default}:retry", redisZ(time.Now().Add(10*time.Minute), failed.id)) // as asynq's Retry does
		if fates, err := p.promote(ctx, []job{failed}); err != nil || fates[0] != turns.Done {
			t.Errorf("promoted: %v, %v; want done", fates, err)
		}
		at := time.Now().Add(3 * time.Hour)
		if err := p.postpone(ctx, "default", []putBackAt{{failed.id, at}, {denied.id, at}, {"gone", at}}); err != nil {
			t.Fatal(err)
		}
		tasks := asynq.NewInspectorFromRedisClient(rdb)
		for id, want := range map[string]time.Duration{failed.id: 10 * time.Minute, denied.id: 3 * time.Hour} {
			info, err := tasks.GetTaskInfo("default", id)
			if err != nil || time.Until(info.NextProcessAt).Round(time.Minute) != want {
				t.Errorf("%s comes at %v, %v; want in %s", id, info.NextProcessAt, err, want)
			}
		}
		if fates, err := p.promote(ctx, []job{denied}); err != nil || fates[0] != turns.Moved {
			t.Errorf("a postponed job is %v, %v; want moved", fates, err)
		}
	})
}

// A job whose worker died comes with asynq's next poll: it is not taken for one that
// waits for something else, or it would lose its place in its lane.
func TestRecoveredJobsCome(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		ctx := t.Context()
		j := add(t, rdb, "job")
		hash := queuePrefix(j.queue) + "t:" + j.id
		rdb.RPopLPush(ctx, "asynq:{default}:pending", "asynq:{default}:active")
		w := writeBack{job: j, hash: hash, active: "asynq:{default}:active", lease: "asynq:{default}:lease"}
		msg := rdb.HGet(ctx, hash, "msg").Val()
		if err := lua.Crash.Run(ctx, rdb, w.keys(), j.id, msg, time.Now().Unix(), 0, forgivenCrashes).Err(); err != nil {
			t.Fatal(err)
		}
		if fates, err := (promoter{rdb}).promote(ctx, []job{j}); err != nil || fates[0] != turns.Pending {
			t.Errorf("a recovered job is %v, %v; want pending", fates, err)
		}
	})
}

func TestDueListsDeniedJobsByPages(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		ctx := t.Context()
		p := promoter{rdb}
		for i := range 150 {
			addDenied(t, p, fmt.Sprintf("%03d", i))
		}
		early := time.Now().Add(time.Minute)
		if err := p.postpone(ctx, "default", []putBackAt{{"149", early}}); err != nil {
			t.Fatal(err)
		}
		rdb.ZAdd(ctx, "asynq:{default}:retry", redisZ(time.Now().Add(time.Second), "000")) // failed
		ids, next, err := p.due(ctx, "default", early.Add(time.Minute), 0)
		if err != nil || next != -1 || !slices.Equal(ids, []string{"149"}) {
			t.Errorf("due within 2 minutes: %v, %d, %v; want 149 and no more pages", ids, next, err)
		}
		ids, next, err = p.due(ctx, "default", time.Time{}, 0)
		if err != nil || next != duePage || len(ids) != duePage-1 || ids[0] != "149" {
			t.Errorf("first page: %d from %v on, %d, %v", len(ids), ids[:1], next, err)
		}
		ids, next, err = p.due(ctx, "default", time.Time{}, next)
		if err != nil || next != -1 || len(ids) != 50 {
			t.Errorf("second page: %d, %d, %v; want 50, the last", len(ids), next, err)
		}
	})
}

func TestStates(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		p := promoter{rdb}
		addDenied(t, p, "denied")
		add(t, rdb, "pending")
		add(t, rdb, "scheduled", asynq.ProcessIn(time.Hour))
		states, err := p.states(t.Context(), "default", "denied", "gone", "pending", "scheduled")
		if want := []string{"retry", "", "pending", "scheduled"}; err != nil || !slices.Equal(states, want) {
			t.Errorf("states %v, %v; want %v", states, err, want)
		}
	})
}

// The lock of asynq's Unique holds for as long as its job waits.
func TestUniqueHoldsWhileAJobWaits(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		p := promoter{rdb}
		it := addDenied(t, p, "it", asynq.Unique(time.Minute))
		ttl := func() time.Duration {
			keys := rdb.Keys(t.Context(), "asynq:{default}:unique:*").Val()
			if len(keys) != 1 {
				t.Fatalf("locks: %v, want one", keys)
			}
			return rdb.TTL(t.Context(), keys[0]).Val().Round(time.Minute)
		}
		if got := ttl(); got != time.Hour+time.Minute {
			t.Errorf("the lock holds %s, want 1h1m", got)
		}
		if err := p.postpone(t.Context(), "default", []putBackAt{{it.id, time.Now().Add(3 * time.Hour)}}); err != nil {
			t.Fatal(err)
		}
		if got := ttl(); got != 3*time.Hour+time.Minute {
			t.Errorf("the lock holds %s, want 3h1m", got)
		}
		if _, err := p.promote(t.Context(), []job{it}); err != nil {
			t.Fatal(err)
		}
		if got := ttl(); got != time.Minute {
			t.Errorf("the lock of a called job holds %s, want what was left of its minute", got)
		}
		if rdb.HExists(t.Context(), "asynq:{default}:t:it", "lock_ms").Val() {
			t.Error("what was left is kept")
		}
	})
}

// waitingUnique has a job with a Unique lock of 5 s wait for 10 s. When it runs it fails, and
// is to be retried in an hour.
func waitingUnique(t *testing.T, then func(t *testing.T, st *stack, task *asynq.Task, id string)) {
	hourly := throttle.Limit{Name: "api", Kind: throttle.Funnel, Rate: throttle.Every(time.Hour)}
	fail := func(context.Context, *asynq.Task) error { return errors.New("boom") }
	config := quick
	config.RetryDelayFunc = func(int, error, *asynq.Task) time.Duration { return time.Hour }
	virtual(t, settings{config: config, limits: []throttle.Limit{hourly}, handle: fail}, func(t *testing.T, st *stack) {
		if d, err := st.limiter.Allow(t.Context(), "api", ""); !d.OK() {
			t.Fatal(d, err)
		}
		task := asynq.NewTask("job", nil, asynq.Unique(5*time.Second))
		id := st.enqueue(task)
		time.Sleep(10 * time.Second)
		then(t, st, task, id)
	})
}

// A Unique lock ends when it would have ended, had its job not waited.
func TestUniqueEndsWhenItShould(t *testing.T) {
	waitingUnique(t, func(t *testing.T, st *stack, task *asynq.Task, id string) {
		if _, err := st.client.Enqueue(task); !errors.Is(err, asynq.ErrDuplicateTask) {
			t.Errorf("a second of it while it waits: %v, want ErrDuplicateTask", err)
		}
		st.must(st.limiter.Set(t.Context(), funnel("api", 10, 10)))
		time.Sleep(3 * time.Second)
		if info := st.info(id); info == nil || info.LastErr != "boom" {
			t.Errorf("job: %+v, want that it has run and failed", info)
		}
		if _, err := st.client.Enqueue(task); !errors.Is(err, asynq.ErrDuplicateTask) {
			t.Errorf("a second of it 3 s after it was called: %v, want ErrDuplicateTask", err)
		}
		time.Sleep(3 * time.Second)
		if _, err := st.client.Enqueue(task); err != nil {
			t.Errorf("another 6 s after it was called: %v, want that the lock has ended", err)
		}
	})
}

// So does the lock of a job that an operator archived while it waited, and ran later.
func TestUniqueOfAnArchivedJob(t *testing.T) {
	waitingUnique(t, func(t *testing.T, st *stack, task *asynq.Task, id string) {
		st.must(st.tasks.ArchiveTask("default", id))
		st.must(st.limiter.Set(t.Context(), funnel("api", 10, 10)))
		time.Sleep(10 * time.Second)
		st.must(st.tasks.RunTask("default", id))
		time.Sleep(3 * time.Second)
		if _, err := st.client.Enqueue(task); !errors.Is(err, asynq.ErrDuplicateTask) {
			t.Errorf("a second of it 3 s after it was run: %v, want ErrDuplicateTask", err)
		}
		time.Sleep(3 * time.Second)
		if info := st.info(id); info == nil || info.LastErr != "boom" {
			t.Errorf("job: %+v, want that it has run and failed", info)
		}
		if _, err := st.client.Enqueue(task); err != nil {
			t.Errorf("another 6 s after it was run: %v, want that the lock has ended", err)
		}
	})
}

// order lets an asynq server with one worker run n jobs.
func order(t *testing.T, rdb redis.UniversalClient, n int) []string {
	t.Helper()
	ids := make(chan string, n)
	server := asynq.NewServerFromRedisClient(rdb, asynq.Config{Concurrency: 1, Logger: silent{}, TaskCheckInterval: 5 * time.Millisecond})
	err := server.Start(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		id, _ := asynq.GetTaskID(ctx)
		ids <- id
		return nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	defer server.Shutdown()
	var got []string
	for range n {
		got = append(got, <-ids)
	}
	return got
}

func TestCheckFindsAnotherLayout(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		ctx := t.Context()
		if err := (promoter{rdb}).check(ctx); err != nil {
			t.Errorf("asynq's own layout: %v", err)
		}
		rdb.AddHook(redistest.Hook(elsewhere))
		if err := (promoter{rdb}).check(ctx); !errors.Is(err, errLayout) {
			t.Errorf("another layout: %v, want errLayout", err)
		}
		if queues, err := asynq.NewInspectorFromRedisClient(rdb).Queues(); err != nil || len(queues) != 0 {
			t.Errorf("the check leaves queues %v, %v behind", queues, err)
		}
	})
}

// A check that ends before it hears that its job is there leaves nothing behind either.
func TestCheckThatIsCutShort(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		rdb.AddHook(redistest.Hook(cutShort))
		if err := (promoter{rdb}).check(t.Context()); err == nil || !strings.Contains(err.Error(), "context canceled") {
			t.Errorf("%v, want context canceled", err)
		}
		if queues, err := asynq.NewInspectorFromRedisClient(rdb).Queues(); err != nil || len(queues) != 0 {
			t.Errorf("the check leaves queues %v, %v behind", queues, err)
		}
	})
}

// A server that stops while its check has taken the job leaves none of it either: asynq
// deletes no queue of which a job is active.
func TestCheckThatIsCutShortWithTheJobTaken(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		rdb.AddHook(redistest.Hook(afterTaking{cancel}.around))
		if err := (promoter{rdb}).check(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("%v, want context canceled", err)
		}
		if keys, err := rdb.Keys(t.Context(), "asynq:*").Result(); err != nil || len(keys) != 0 {
			t.Errorf("the check leaves %v, %v behind", keys, err)
		}
	})
}

// afterTaking calls a function once a job is active.
type afterTaking struct{ do func() }

func (a afterTaking) around(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	err := next(ctx, cmd)
	if cmd.Name() == "rpoplpush" {
		a.do()
	}
	return err
}

// cutShort ends the context of whoever enqueues, when that is done.
func cutShort(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	err := next(ctx, cmd)
	if args := cmd.Args(); err == nil && len(args) > 4 && strings.HasPrefix(fmt.Sprint(args[0]), "eval") && strings.HasSuffix(fmt.Sprint(args[4]), ":pending") {
		err = context.Canceled
	}
	return err
}

// elsewhere makes promote look for denied jobs where asynq keeps none.
func elsewhere(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	args := cmd.Args()
	if strings.HasPrefix(cmd.Name(), "eval") && fmt.Sprint(args[2]) == "3" && strings.HasSuffix(fmt.Sprint(args[4]), ":retry") {
		args[4] = fmt.Sprint(args[4]) + "-elsewhere"
	}
	return next(ctx, cmd)
}

// A Redis that is flushed before any call of the check says nothing of asynq's
// layout, and is no outage.
func TestFlushedWhileChecking(t *testing.T) {
	calls := 1
	for flushed := 1; flushed <= calls; flushed++ {
		synctest.Test(t, func(t *testing.T) {
			m, rdb := redistest.Mini(t)
			calls = 0
			rdb.AddHook(newFuse(func(redis.Cmder) bool {
				if calls++; calls == flushed {
					m.FlushAll()
				}
				return false
			}))
			var log journal
			s := &Server{promoter: promoter{rdb}, log: log.logger(), queueOutage: newOutageLog(log.logger(), "the queues' Redis", nil)}
			s.promotes.Store(true)
			if err := s.checkPromote(t.Context()); err != nil || !s.promotes.Load() || log.String() != "" {
				t.Errorf("flushed before its %d. call: %v, promotes %v, logged %s", flushed, err, s.promotes.Load(), log.String())
			}
		})
	}
	if calls < 10 {
		t.Errorf("the check makes %d calls: the test shows nothing", calls)
	}
}
