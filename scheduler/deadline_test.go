package scheduler

import (
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/throttle"
)

// asynq fails a job that is past its deadline without its handler: nothing is kept
// of it.
func TestDeadlinesThatAreOver(t *testing.T) {
	virtual(t, settings{limits: []throttle.Limit{perMinute(60, 10)}}, func(t *testing.T, st *stack) {
		id := st.enqueue(NewTask("job", nil, asynq.MaxRetry(0), asynq.Deadline(time.Now().Add(-time.Minute))))
		time.Sleep(time.Minute)
		if info := st.info(id); info == nil || info.State != asynq.TaskStateArchived || len(st.ran()) != 0 {
			t.Errorf("job: %+v, ran %v; want it archived without a run", info, st.ran())
		}
		st.server.deadlines.byJob.Range(func(j, _ any) bool {
			t.Errorf("the deadline of %v is kept", j)
			return true
		})
	})
}
