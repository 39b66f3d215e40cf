package scheduler

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/redishealth"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/throttle"
)

// waitingUnique lets a job with a Unique lock of 5 s wait for 10 s. When it runs it fails, and is
// retried in an hour.
func waitingUnique(t *testing.T, then func(t *testing.T, st *stack, task *asynq.Task, id string)) {
	virtual(t, settings{config: retrying(quick, time.Hour), limits: []throttle.Limit{each(time.Hour)}, handle: returns(errors.New("boom"))}, func(t *testing.T, st *stack) {
		st.takePermit("api")
		task := asynq.NewTask("job", nil, asynq.Unique(5*time.Second))
		id := st.enqueue(task)
		time.Sleep(10 * time.Second)
		then(t, st, task, id)
	})
}

// TestUnique_EndsInTime: from the grant on, a Unique lock lasts as long as if its job had not
// waited.
func TestUnique_EndsInTime(t *testing.T) {
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
			t.Errorf("a second of it 3 s after it was granted: %v, want ErrDuplicateTask", err)
		}
		time.Sleep(3 * time.Second)
		if _, err := st.client.Enqueue(task); err != nil {
			t.Errorf("another 6 s after it was granted: %v, want that the lock has ended", err)
		}
	})
}

// TestUnique_ArchivedJob: so does the lock of a job that an operator archived while it waited, and
// ran later.
func TestUnique_ArchivedJob(t *testing.T) {
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

// TestCheckPromote_FlushedMeanwhile: if Redis is flushed before any call of the check, that is no
// sign of another asynq layout, and no outage.
func TestCheckPromote_FlushedMeanwhile(t *testing.T) {
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
			s := &Server{db: asynqdb.New(rdb), log: log.logger(), scopes: []*scope{{queueHealth: redishealth.New(log.logger(), "the queues' Redis", nil)}}}
			s.canPromote.Store(true)
			if err := s.checkPromote(t.Context()); err != nil || !s.canPromote.Load() || log.String() != "" {
				t.Errorf("flushed before its %d. call: %v, promotes %v, logged %s", flushed, err, s.canPromote.Load(), log.String())
			}
		})
	}
	if calls < 10 {
		t.Errorf("the check makes %d calls: the test shows nothing", calls)
	}
}
