package scheduler

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/throttle"
)

// TestCrashes: the first crashes of its worker cost a job nothing, on its last attempt too. After
// them each counts, so a job that kills its workers ends in the archive.
func TestCrashes(t *testing.T) {
	slow(t)
	for name, test := range map[string]struct {
		maxRetry int
		options  []Option
		deaths   int // processes that the job kills if it can
		runs     int
		state    asynq.TaskState
	}{
		"one, on the last attempt":                     {0, nil, 1, 2, gone},
		"as many as are forgiven, on the last attempt": {0, nil, 3, 4, gone},
		"one more, on the last attempt":                {0, nil, 100, 4, asynq.TaskStateArchived},
		"all, with retries":                            {3, nil, 100, 3 + 4, asynq.TaskStateArchived},
		"all, and none is forgiven":                    {1, []Option{unforgiven}, 100, 2, asynq.TaskStateArchived},
	} {
		t.Run(name, func(t *testing.T) {
			s := settings{config: retrying(idle, time.Second), limits: []throttle.Limit{perMinute(60, 10)}, options: test.options}
			virtual(t, s, func(t *testing.T, st *stack) {
				st.server.Shutdown()
				id := st.enqueue(asynq.NewTask("job", nil), asynq.MaxRetry(test.maxRetry), asynq.Unique(time.Minute))
				runs := 0
				for range test.runs + 2 {
					s.fuse = newFuse(nil)
					s.handle = func(context.Context, *asynq.Task) error {
						if runs++; runs <= test.deaths {
							return s.fuse.die()
						}
						return nil
					}
					p := st.beside(s)
					time.Sleep(2 * time.Minute)
					p.wantNotReported() // asynq's recoverer does not report either
				}
				if runs != test.runs {
					t.Errorf("ran %d times, want %d", runs, test.runs)
				}
				st.wantJob(id, test.state, "its worker died")
			})
		})
	}
}

// TestRecovery_KilledWorker: the jobs of a killed worker come back within 40 s, whenever between
// two heartbeats it died, and no attempt is spent.
func TestRecovery_KilledWorker(t *testing.T) {
	s := settings{config: asynq.Config{Concurrency: 2, TaskCheckInterval: time.Second}, limits: []throttle.Limit{perMinute(6000, 100)}}
	virtual(t, s, func(t *testing.T, st *stack) {
		st.server.Shutdown()
		for sixth := range 6 { // of two heartbeats
			dies := s
			dies.fuse = newFuse(nil)
			dies.handle = func(context.Context, *asynq.Task) error { <-dies.fuse.blown; return dies.fuse.die() }
			first := st.beside(dies)
			jobs := append(first.enqueueN(1, "", asynq.Retention(time.Hour)), first.enqueueN(1, "", asynq.MaxRetry(3), asynq.Retention(time.Hour))...)
			time.Sleep(time.Minute + time.Duration(sixth)*10*time.Second/6)
			first.wantRuns(2)
			dies.fuse.kill()
			killed := time.Now()
			second := st.beside(s)
			time.Sleep(time.Minute + 30*time.Second)
			for _, r := range second.ran() {
				if took := r.at.Sub(killed); took < 25*time.Second || took > 40*time.Second {
					t.Errorf("a job came back %s after its worker was killed, want 25 to 40 s", took)
				}
			}
			second.wantOnceEach(2)
			for _, id := range jobs {
				if info := second.wantJob(id, asynq.TaskStateCompleted, ""); info.Retried != 0 || time.Since(info.LastFailedAt) > 2*time.Minute {
					t.Errorf("job: %+v, want it completed without a retry", info)
				}
				st.must(st.tasks.DeleteTask("default", id))
			}
			second.server.Shutdown()
		}
	})
}

// TestRecovery_OtherClock: a living worker whose clock is wrong keeps its jobs: its leases seem to
// have ended, and are extended all the same.
func TestRecovery_OtherClock(t *testing.T) {
	virtual(t, settings{limits: []throttle.Limit{perMinute(60, 10)}}, func(t *testing.T, st *stack) {
		ctx := t.Context()
		st.must(st.tasks.PauseQueue("default"))
		id := st.enqueueN(1, "")[0]
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
			st.wantJob(id, asynq.TaskStateActive, "")
		}
		time.Sleep(35 * time.Second)
		st.wantOnceEach(1)
	})
}

// TestRecovery_OutageIsNoCrash: the Redis of the queues is away for longer than a lease. Jobs that
// asked for permits meanwhile, and could not be put back, have not crashed.
func TestRecovery_OutageIsNoCrash(t *testing.T) {
	virtual(t, settings{
		config: asynq.Config{Concurrency: 4, TaskCheckInterval: time.Second}, split: true,
		limits: []throttle.Limit{perMinute(60, 4)}, options: []Option{unforgiven},
	}, func(t *testing.T, st *stack) {
		time.Sleep(time.Minute)
		st.toLimiter.slow.Store(int64(20 * time.Second))
		st.toLimiter.cut.Store(true)
		ids := st.enqueueN(4, "", asynq.Timeout(2*time.Second))
		time.Sleep(10 * time.Second)
		for _, id := range ids {
			st.wantJob(id, asynq.TaskStateActive, "") // it asks for permits
		}
		st.toQueues.cut.Store(true)
		time.Sleep(5 * time.Minute)
		st.toQueues.cut.Store(false)
		st.toLimiter.cut.Store(false)
		st.toLimiter.slow.Store(0)
		time.Sleep(time.Minute)
		st.wantOnceEach(4)
		st.wantNothingLeft()
		for _, err := range st.reported {
			if !strings.Contains(err.Error(), "lease") {
				t.Errorf("reported: %v", err)
			}
		}
	})
}

// TestRecovery_LostEntries: Redis loses one of the keys in which a job is listed. The job runs once
// all the same, or stays what it was. A job that cannot run, because its message is lost, is
// removed: another job can have its ID.
func TestRecovery_LostEntries(t *testing.T) {
	t.Parallel()
	ctx, opt := context.Background(), func(opts ...asynq.Option) []asynq.Option { return opts }
	const hash, message = "hash", "message"
	active := []string{"active", "lease", "active lease", hash}
	for name, w := range map[string]struct {
		opts   []asynq.Option
		rate   throttle.Rate // of the limit, whose permit another job has
		first  func() error  // what its first run does
		dead   bool          // whether a worker that died has the job
		paused bool          // whether the queue is paused when the key gets lost
		loses  []string      // each for itself
		runs   int           // 0 if the hash is lost before the job runs
		state  asynq.TaskState
	}{
		"pending":               {paused: true, loses: []string{"pending", hash}, runs: 1},
		"of a dead worker":      {dead: true, loses: append(active, "active hash", "lease hash"), runs: 1},
		"running, soon done":    {loses: active, runs: 1, first: func() error { time.Sleep(time.Second); return nil }},
		"running for long":      {loses: active, runs: 1, first: func() error { time.Sleep(2 * time.Minute); return nil }},
		"running, fails":        {loses: active, runs: 2, first: func() error { time.Sleep(time.Second); return errors.New("failed") }},
		"running, put back":     {loses: active, runs: 2, first: func() error { time.Sleep(time.Second); return RetryAfter(time.Second) }},
		"denied":                {rate: throttle.Every(30 * time.Second), loses: []string{"retry", hash}, runs: 1},
		"failed":                {loses: []string{"retry"}, runs: 2, first: func() error { return errors.New("failed") }},
		"scheduled":             {opts: opt(asynq.ProcessIn(time.Hour)), loses: []string{"scheduled"}, runs: 1},
		"scheduled in a minute": {opts: opt(asynq.ProcessIn(time.Minute)), loses: []string{hash, message}, runs: 1},
		"archived":              {opts: opt(asynq.MaxRetry(0)), first: func() error { return errors.New("failed") }, loses: []string{"archived"}, runs: 1, state: asynq.TaskStateArchived},
		"completed":             {opts: opt(asynq.Retention(time.Hour)), loses: []string{"completed"}, runs: 1, state: asynq.TaskStateCompleted},
	} {
		for _, lost := range w.loses {
			t.Run(name+": "+lost, func(t *testing.T) {
				limit := throttle.Limit{Name: "api", Kind: throttle.Funnel, Rate: w.rate}
				if limit.Rate == (throttle.Rate{}) {
					limit.Rate = throttle.PerSecond(1000)
				}
				first := true
				handle := func(ctx context.Context, _ *asynq.Task) error {
					if id, _ := asynq.GetTaskID(ctx); id == "it" && first && w.first != nil {
						first = false
						return w.first()
					}
					return nil
				}
				virtual(t, settings{limits: []throttle.Limit{limit}, handle: handle, config: retrying(asynq.Config{Concurrency: 2}, 10*time.Second)}, func(t *testing.T, st *stack) {
					st.enqueueN(1, "")
					time.Sleep(2 * time.Second)
					if w.paused || w.dead {
						st.must(st.tasks.PauseQueue("default"))
						time.Sleep(2 * time.Second)
					}
					st.enqueue(asynq.NewTask("job", nil), append(w.opts, asynq.TaskID("it"))...)
					if w.dead {
						st.must(st.rdb.Del(ctx, asynqdb.Key("default", asynqdb.Paused)).Err())
						_, err := asynqdb.New(st.rdb).Dequeue(ctx, asynqdb.NewDequeue("default", time.Now().Add(asynqdb.LeaseTime).Unix(), false), 1)
						st.must(err)
					}
					time.Sleep(500 * time.Millisecond)
					runs := w.runs
					for key := range strings.FieldsSeq(lost) {
						n := int64(0)
						switch key {
						case message:
							n = st.rdb.HDel(ctx, asynqdb.Hash("default", "it"), "msg").Val()
						case hash:
							n = st.rdb.Del(ctx, asynqdb.Hash("default", "it")).Val()
						default:
							n = st.rdb.Del(ctx, asynqdb.Key("default", key)).Val()
						}
						if n != 1 {
							t.Fatalf("%s is not there: the job is %v", key, st.info("it"))
						}
						if w.first == nil && (key == hash || key == message) {
							runs = 0
						}
					}
					if w.paused {
						st.must(st.tasks.UnpauseQueue("default"))
					}
					time.Sleep(3 * time.Minute)
					if n := strings.Count(strings.Join(st.order(), " "), "it"); n != runs {
						t.Errorf("it ran %d times, want %d", n, runs)
					}
					st.wantJob("it", w.state, "")
					if queue, err := st.tasks.GetQueueInfo("default"); err != nil || w.state == gone && queue.Size+queue.Active != 0 {
						t.Errorf("queue: %+v, %v; want it empty", queue, err)
					}
				})
			})
		}
	}
}
