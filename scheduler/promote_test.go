package scheduler

import (
	"errors"
	"testing"
	"time"

	"github.com/hibiken/asynq"

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
