package scheduler

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/throttle"
)

// TestRecovery_LostEntries: Redis loses one of the keys in which a job stands. The job runs once all the
// same, or is what it was. One that cannot run, because its message is lost, goes: another job
// can have its ID.
func TestRecovery_LostEntries(t *testing.T) {
	const gone = asynq.TaskState(-1)
	ctx, opt := context.Background(), func(opts ...asynq.Option) []asynq.Option { return opts }
	hash := asynqdb.Hash("default", "it")
	keys := func(names ...string) (keys []string) {
		for _, name := range names {
			keys = append(keys, asynqdb.Key("default", name))
		}
		return keys
	}
	worlds := map[string]struct {
		opts  []asynq.Option
		rate  throttle.Rate                              // of the limit, whose permit another job has
		first func(ctx context.Context, st *stack) error // what its first run does
		dead  bool                                       // whether a worker that died has the job
		stop  bool                                       // whether the queue is paused when the key gets lost
		loses map[string][]string
		runs  int
		ends  asynq.TaskState
	}{
		"pending":   {stop: true, loses: map[string][]string{"the list": keys("pending")}, runs: 1, ends: gone},
		"pending, ": {stop: true, loses: map[string][]string{"the hash": {hash}}, runs: 0, ends: gone},
		"of a dead worker": {dead: true, runs: 1, ends: gone, loses: map[string][]string{
			"the list": keys("active"), "the lease": keys("lease"), "both": keys("active", "lease"),
		}},
		"of a dead worker, ": {dead: true, loses: map[string][]string{"the hash": {hash}, "all but the lease": append(keys("active"), hash), "all but the list": append(keys("lease"), hash)}, runs: 0, ends: gone},
		"of a living worker, soon done": {runs: 1, ends: gone, first: func(context.Context, *stack) error { time.Sleep(time.Second); return nil }, loses: map[string][]string{
			"the list": keys("active"), "the lease": keys("lease"), "both": keys("active", "lease"), "the hash": {hash},
		}},
		"of a living worker": {runs: 1, ends: gone, first: func(context.Context, *stack) error { time.Sleep(2 * time.Minute); return nil }, loses: map[string][]string{
			"the list": keys("active"), "the lease": keys("lease"), "both": keys("active", "lease"), "the hash": {hash},
		}},
		"of a living worker, which fails": {runs: 2, ends: gone, first: func(context.Context, *stack) error { time.Sleep(time.Second); return errors.New("failed") }, loses: map[string][]string{
			"the list": keys("active"), "the lease": keys("lease"), "both": keys("active", "lease"), "the hash": {hash},
		}},
		"of a living worker, which puts it back": {runs: 2, ends: gone, first: func(context.Context, *stack) error { time.Sleep(time.Second); return RetryAfter(time.Second) }, loses: map[string][]string{
			"the list": keys("active"), "the lease": keys("lease"), "both": keys("active", "lease"), "the hash": {hash},
		}},
		"denied":      {rate: throttle.Every(30 * time.Second), loses: map[string][]string{"the set": keys("retry")}, runs: 1, ends: gone},
		"denied, ":    {rate: throttle.Every(30 * time.Second), loses: map[string][]string{"the hash": {hash}}, runs: 0, ends: gone},
		"failed":      {runs: 2, ends: gone, first: func(context.Context, *stack) error { return errors.New("failed") }, loses: map[string][]string{"the set": keys("retry")}},
		"scheduled":   {opts: opt(asynq.ProcessIn(time.Hour)), loses: map[string][]string{"the set": keys("scheduled")}, runs: 1, ends: gone},
		"scheduled, ": {opts: opt(asynq.ProcessIn(time.Minute)), loses: map[string][]string{"the hash": {hash}}, runs: 0, ends: gone},
		"archived": {opts: opt(asynq.MaxRetry(0)), first: func(context.Context, *stack) error { return errors.New("failed") },
			loses: map[string][]string{"the set": keys("archived")}, runs: 1, ends: asynq.TaskStateArchived},
		"completed": {opts: opt(asynq.Retention(time.Hour)), loses: map[string][]string{"the set": keys("completed")}, runs: 1, ends: asynq.TaskStateCompleted},
		"cut":       {opts: opt(asynq.ProcessIn(time.Hour)), loses: map[string][]string{"the message": nil}, runs: 0, ends: gone},
	}
	for name, w := range worlds {
		for what, lost := range w.loses {
			t.Run(name+": "+what, func(t *testing.T) {
				rate := w.rate
				if rate == (throttle.Rate{}) {
					rate = throttle.PerSecond(1000)
				}
				first := true
				var st *stack
				handle := func(ctx context.Context, task *asynq.Task) error {
					if task.Payload() == nil && first && w.first != nil {
						first = false
						return w.first(ctx, st)
					}
					return nil
				}
				limit := throttle.Limit{Name: "api", Kind: throttle.Funnel, Rate: rate}
				s := settings{limits: []throttle.Limit{limit}, handle: handle, config: asynq.Config{
					Concurrency: 2, RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return 10 * time.Second },
				}}
				virtual(t, s, func(t *testing.T, it *stack) {
					st = it
					st.enqueue(asynq.NewTask("job", []byte("other")))
					time.Sleep(2 * time.Second)
					if w.stop || w.dead {
						st.must(st.tasks.PauseQueue("default"))
						time.Sleep(2 * time.Second)
					}
					_, err := st.client.Enqueue(asynq.NewTask("job", nil), append(w.opts, asynq.TaskID("it"))...)
					st.must(err)
					if w.dead {
						st.must(st.rdb.Del(ctx, asynqdb.Key("default", asynqdb.Paused)).Err())
						_, err := asynqdb.New(st.rdb).Dequeue(ctx, asynqdb.NewDequeue("default", time.Now().Add(asynqdb.LeaseTime).Unix(), false), 1)
						st.must(err)
					}
					time.Sleep(500 * time.Millisecond)
					if lost == nil {
						st.must(st.rdb.HDel(ctx, hash, "msg").Err())
					} else if n, err := st.rdb.Del(ctx, lost...).Result(); err != nil || int(n) != len(lost) {
						t.Fatalf("%d of %v are there, %v: the job is %v", n, lost, err, st.info("it"))
					}
					if w.stop {
						st.must(st.tasks.UnpauseQueue("default"))
					}
					time.Sleep(3 * time.Minute)
					runs := 0
					for _, r := range st.ran() {
						if r.id == "it" {
							runs++
						}
					}
					if runs != w.runs {
						t.Errorf("it ran %d times, want %d", runs, w.runs)
					}
					info, err := st.tasks.GetTaskInfo("default", "it")
					if found := errors.Is(err, asynq.ErrTaskNotFound); w.ends == gone && !found || w.ends != gone && (err != nil || info.State != w.ends) {
						t.Errorf("in the end: %+v, %v; want %v", info, err, w.ends)
					}
					if queue, err := st.tasks.GetQueueInfo("default"); err != nil || w.ends == gone && queue.Size+queue.Active != 0 {
						t.Errorf("queue: %+v, %v; want it empty", queue, err)
					}
				})
			})
		}
	}
}
