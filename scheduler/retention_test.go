package scheduler

import (
	"context"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/testutil/proctest"
	"github.com/headgate/headgate/internal/testutil/redistest"
)

// A job that has its retention from the rule ends as a job that has the same retention of its own:
// with the same fields, the same counts and a free Unique lock. A job's own retention is kept.
func TestRule_Retention(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		s := settings{rule: func(*asynq.Task) (Rule, error) { return Rule{Retention: time.Hour}, nil }}
		s.handle = func(_ context.Context, task *asynq.Task) error {
			_, err := task.ResultWriter().Write([]byte("result"))
			return err
		}
		st := start(t, rdb, s)
		completed := func(opts ...asynq.Option) (info *asynq.TaskInfo, fields map[string]string) {
			t.Helper()
			id := st.enqueue(asynq.NewTask("job", []byte(t.Name())), append(opts, asynq.Unique(time.Hour))...)
			proctest.Until(t, "completed job", func() (bool, any) {
				var err error
				info, err = st.tasks.GetTaskInfo("default", id)
				return err == nil && info.State == asynq.TaskStateCompleted, err
			})
			fields = rdb.HGetAll(t.Context(), asynqdb.Hash("default", id)).Val()
			return info, fields
		}
		rules, fields := completed()
		own, ownFields := completed(asynq.Retention(2 * time.Hour)) // the lock of the first job is free
		if rules.Retention != time.Hour || own.Retention != 2*time.Hour || string(rules.Result) != "result" || rules.CompletedAt.IsZero() {
			t.Errorf("kept for %s and %s with the result %q, completed at %s", rules.Retention, own.Retention, rules.Result, rules.CompletedAt)
		}
		for field := range ownFields {
			if _, has := fields[field]; !has {
				t.Errorf("the job with its rule's retention has no field %s", field)
			}
		}
		queue, err := st.tasks.GetQueueInfo("default")
		if err != nil || queue.Completed != 2 || queue.ProcessedTotal != 2 || queue.Active != 0 {
			t.Errorf("queue: %+v, %v", queue, err)
		}
		ends := rdb.ZScore(t.Context(), asynqdb.Key("default", asynqdb.Completed), rules.ID).Val()
		if want := rules.CompletedAt.Add(time.Hour).Unix(); int64(ends) != want {
			t.Errorf("kept until %d, want %d", int64(ends), want)
		}
	})
}
