package scheduler

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// Jobs of a worker that was killed come back within 40 s, whenever between two
// heartbeats it died, and no attempt of theirs is spent.
func TestRecovery_KilledWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := redistest.Mini(t)
		s := settings{config: asynq.Config{Concurrency: 2, TaskCheckInterval: time.Second}, limits: []throttle.Limit{perMinute(6000, 100)}}
		for sixth := range 6 { // of two heartbeats
			var runs atomic.Int32
			p := startProcess(t, m, s, func(p *process) error { runs.Add(1); <-p.killed; return p.die() })
			a := p.enqueue(asynq.NewTask("job", nil, asynq.MaxRetry(0), asynq.Retention(time.Hour)))
			b := p.enqueue(asynq.NewTask("job", nil, asynq.MaxRetry(3), asynq.Retention(time.Hour)))
			time.Sleep(time.Minute + time.Duration(sixth)*10*time.Second/6)
			if runs.Load() != 2 {
				t.Fatalf("%d run, want both", runs.Load())
			}
			p.kill()
			killed := time.Now()
			second := start(t, redistest.MiniClient(t, m), s)
			time.Sleep(time.Minute + 30*time.Second)
			for _, r := range second.ran() {
				if took := r.at.Sub(killed); took < 25*time.Second || took > 40*time.Second {
					t.Errorf("a job came back %s after its worker was killed, want 25 to 40 s", took)
				}
			}
			second.wantOnceEach(2)
			for _, id := range []string{a, b} {
				if info := second.info(id); info == nil || info.State != asynq.TaskStateCompleted || info.Retried != 0 || time.Since(info.LastFailedAt) > 2*time.Minute {
					t.Errorf("job: %+v, want it completed without a retry", info)
				}
			}
			second.server.Shutdown()
		}
	})
}

// A living worker whose clock is wrong keeps its jobs: its leases seem to have ended,
// and are extended all the same.
func TestRecovery_OtherClock(t *testing.T) {
	virtual(t, settings{limits: []throttle.Limit{perMinute(60, 10)}}, func(t *testing.T, st *stack) {
		ctx := t.Context()
		st.must(st.tasks.PauseQueue("default"))
		id := st.enqueue(asynq.NewTask("job", nil, asynq.MaxRetry(0)))
		_, err := st.rdb.TxPipelined(ctx, func(p redis.Pipeliner) error {
			p.RPopLPush(ctx, asynqdb.Key("default", asynqdb.Pending), asynqdb.Key("default", asynqdb.Active))
			p.HSet(ctx, asynqdb.Hash("default", id), "state", "active")
			return nil
		})
		st.must(err)
		st.must(st.tasks.UnpauseQueue("default"))
		for range 24 {
			st.must(st.rdb.ZAdd(ctx, asynqdb.Key("default", asynqdb.Lease), redisZ(time.Now().Add(-20*time.Second), id)).Err())
			time.Sleep(5 * time.Second)
			if info := st.info(id); info.State != asynq.TaskStateActive {
				t.Fatalf("job: %+v, want it left to its worker", info)
			}
		}
		time.Sleep(35 * time.Second)
		st.wantOnceEach(1)
	})
}

// A lease that was extended since it was seen is not dead.
func TestRecovery_ExtendedLease(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		ctx := t.Context()
		id := add(t, rdb, "it")
		rdb.RPopLPush(ctx, asynqdb.Key("default", asynqdb.Pending), asynqdb.Key("default", asynqdb.Active))
		rdb.HSet(ctx, asynqdb.Hash("default", id), "state", "active")
		seen := time.Now().Add(-time.Minute)
		rdb.ZAdd(ctx, asynqdb.Key("default", asynqdb.Lease), redisZ(seen.Add(5*time.Second), id))
		var away atomic.Bool
		main := func(string) *scope { return &scope{limiter: waitdb.New(throttle.New(rdb, throttle.Options{}))} }
		r := recovery{redisClient: &redisClient{db: asynqdb.New(rdb), inFlight: &inFlight{}, promotes: &away, forgiven: 1, scopeOf: main}, queues: []string{"default"}}
		j := job{Queue: "default", ID: id}
		state := func() string { return rdb.HGet(ctx, asynqdb.Hash("default", id), "state").Val() }
		r.recover(ctx, j, sighting{seen.Unix(), seen})
		r.inFlight.add(&attempt{job: j, end: attemptEnd{putBack: &putBackError{error: throttle.ErrUnavailable, at: time.Now(), denied: true}}})
		r.recover(ctx, j, sighting{seen.Unix(), seen})
		if got := state(); got != "active" {
			t.Fatalf("the job is %s, want active: its lease was extended", got)
		}
		r.recover(ctx, j, sighting{seen.Unix() + 5, seen})
		if got := state(); got != "retry" {
			t.Errorf("the job is %s, want that it was put back", got)
		}
		if rdb.HExists(ctx, asynqdb.Hash("default", id), "crashes").Val() {
			t.Error("that it was put back counts as a crash")
		}
	})
}

// The one Redis is away for longer than a lease: jobs that asked meanwhile, and could
// not be put back, have not crashed.
func TestRecovery_OutageIsNoCrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, queues := redistest.Mini(t)
		_, limiter := redistest.Mini(t)
		var toQueues, toLimiter wire
		queues.AddHook(redistest.Hook(toQueues.around))
		limiter.AddHook(redistest.Hook(toLimiter.around))
		st := start(t, queues, settings{
			config: asynq.Config{Concurrency: 4, TaskCheckInterval: time.Second}, redis: limiter,
			limits: []throttle.Limit{perMinute(60, 4)}, options: []Option{WithForgivenCrashes(0)},
		})
		time.Sleep(time.Minute)
		toLimiter.slow.Store(int64(20 * time.Second))
		toLimiter.cut.Store(true)
		var ids []string
		for range 4 {
			ids = append(ids, st.enqueue(asynq.NewTask("job", nil, asynq.MaxRetry(0), asynq.Timeout(2*time.Second))))
		}
		time.Sleep(10 * time.Second) // all four ask
		for _, id := range ids {
			if info := st.info(id); info.State != asynq.TaskStateActive {
				t.Fatalf("job: %+v, want that it asks", info)
			}
		}
		toQueues.cut.Store(true)
		time.Sleep(5 * time.Minute)
		toQueues.cut.Store(false)
		toLimiter.cut.Store(false)
		toLimiter.slow.Store(0)
		time.Sleep(time.Minute)
		st.wantOnceEach(4)
		if queue, err := st.tasks.GetQueueInfo("default"); err != nil || queue.Size != 0 || queue.FailedTotal != 0 {
			t.Errorf("queue: %+v, %v; want all jobs done and none failed", queue, err)
		}
		for _, err := range st.reported {
			if !strings.Contains(err.Error(), "lease") {
				t.Errorf("reported: %v", err)
			}
		}
	})
}
