package scheduler

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/throttle"
)

// TestUnique_EndsInTime: from the grant on, or from when an operator runs it, a Unique lock of 5 s
// lasts as long as if its job had not waited.
func TestUnique_EndsInTime(t *testing.T) {
	for _, archived := range []bool{false, true} {
		virtual(t, settings{config: retrying(quick, time.Hour), limits: []throttle.Limit{each(time.Hour)}, handle: returns(errors.New("boom"))}, func(t *testing.T, st *stack) {
			st.takePermit("api")
			task := asynq.NewTask("job", nil, asynq.Unique(5*time.Second))
			id := st.enqueue(task)
			locked := func(when string, want bool) {
				t.Helper()
				if _, err := st.client.Enqueue(task); errors.Is(err, asynq.ErrDuplicateTask) != want || err != nil && !want {
					t.Errorf("archived %v: a second of it %s: %v, want a duplicate: %v", archived, when, err, want)
				}
			}
			time.Sleep(10 * time.Second)
			locked("while it waits", true)
			if archived {
				st.must(st.tasks.ArchiveTask("default", id))
			}
			st.must(st.limiter.Set(t.Context(), funnel("api", 10, 10)))
			if archived {
				time.Sleep(10 * time.Second)
				st.must(st.tasks.RunTask("default", id))
			}
			time.Sleep(3 * time.Second)
			locked("3 s after its grant", true)
			st.wantJob(id, asynq.TaskStateRetry, "boom")
			time.Sleep(3 * time.Second)
			locked("6 s after its grant", false)
		})
	}
}

// TestCheckPromote_FlushedMeanwhile: if Redis is flushed before any call of the check, that is no
// sign of another asynq layout.
func TestCheckPromote_FlushedMeanwhile(t *testing.T) {
	for flushed := range 12 {
		synctest.Test(t, func(t *testing.T) {
			m, rdb := redistest.Mini(t)
			calls := 0
			rdb.AddHook(before(func(context.Context, ...redis.Cmder) error {
				if calls++; calls == flushed {
					m.FlushAll()
				}
				return nil
			}))
			s := newServer(t, rdb, nil, asynq.Config{})
			s.canPromote.Store(true)
			if s.checkPromote(t.Context()); !s.canPromote.Load() || calls < 10 {
				t.Errorf("flushed before call %d of %d: jobs are not promoted any more", flushed, calls)
			}
		})
	}
}
