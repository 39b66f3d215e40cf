package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/throttle"
)

// TestEnqueueAll: tasks that are enqueued together keep their order, each as if it had been
// enqueued alone.
func TestEnqueueAll(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		client := NewClient(rdb)
		tasks := []*asynq.Task{asynq.NewTask("first", nil, asynq.TaskID("first"))} // so that Redis has the script
		for i := range 150 {
			tasks = append(tasks, asynq.NewTask("job", fmt.Append(nil, i), asynq.TaskID(fmt.Sprint(i))))
		}
		for _, answer := range client.EnqueueAll(t.Context(), tasks[0]) {
			if answer.Err != nil || answer.Info.ID != "first" {
				t.Fatalf("%+v", answer)
			}
		}
		trips := 0
		rdb.AddHook(before(func(context.Context, ...redis.Cmder) error { trips++; return nil }))
		answers := client.EnqueueAll(t.Context(), tasks[1:]...)
		for i, answer := range answers {
			if answer.Err != nil || answer.Info.ID != fmt.Sprint(i) || answer.Info.State != asynq.TaskStatePending {
				t.Errorf("task %d: %+v, %v", i, answer.Info, answer.Err)
			}
		}
		if len(answers) != 150 || trips != 3 {
			t.Errorf("%d answers in %d round trips, want 150 in 3", len(answers), trips)
		}
		pending := rdb.LRange(t.Context(), asynqdb.Key("default", asynqdb.Pending), 0, -1).Val()
		slices.Reverse(pending)
		for i, id := range pending[1:] {
			if id != fmt.Sprint(i) {
				t.Fatalf("job %s is number %d", id, i)
			}
		}
		if marks := rdb.ZCard(t.Context(), markerKey("default")).Val(); marks != 1 {
			t.Errorf("%d marks wake servers, want 1", marks)
		}
	})
}

// TestEnqueueAll_AllKinds: an error of one task does not concern the others, and options apply as
// in Enqueue.
func TestEnqueueAll_AllKinds(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		client := NewClient(rdb)
		unique := asynq.NewTask("job", []byte("unique"), asynq.Unique(time.Hour))
		answers := client.EnqueueAll(t.Context(),
			asynq.NewTask("job", nil, asynq.TaskID("it")),
			asynq.NewTask("job", nil, asynq.TaskID("it")),
			unique, unique, nil, asynq.NewTask(" ", nil),
			asynq.NewTask("job", nil, asynq.Queue("two\nlines")),
			asynq.NewTask("job", nil, asynq.ProcessIn(time.Hour)),
			asynq.NewTask("job", nil, asynq.Group("all")),
			NewTask("job", nil, asynq.Queue("other"), Priority(PriorityHigh)),
		)
		wrong := (*throttle.FieldError)(nil)
		for i, want := range []func(error) bool{
			nil, func(err error) bool { return errors.Is(err, asynq.ErrTaskIDConflict) },
			nil, func(err error) bool { return errors.Is(err, asynq.ErrDuplicateTask) },
			func(err error) bool { return err != nil }, func(err error) bool { return err != nil },
			func(err error) bool { return errors.As(err, &wrong) }, nil, nil, nil,
		} {
			if err := answers[i].Err; want == nil && err != nil || want != nil && !want(err) {
				t.Errorf("task %d: %v", i, err)
			}
		}
		for i, want := range map[int]asynq.TaskState{7: asynq.TaskStateScheduled, 8: asynq.TaskStateAggregating, 9: asynq.TaskStatePending} {
			if info := answers[i].Info; info.State != want {
				t.Errorf("task %d is %s, want %s", i, info.State, want)
			}
		}
		tasks := asynq.NewInspectorFromRedisClient(rdb)
		if info, err := tasks.GetTaskInfo("other", answers[9].Info.ID); err != nil || info.Headers[headerPriority] != string(PriorityHigh) {
			t.Errorf("the last: %+v, %v; want its priority", info, err)
		}
		for i, answer := range client.EnqueueAll(canceled(t), asynq.NewTask("job", nil), asynq.NewTask("job", nil)) {
			if answer.Err == nil || !strings.Contains(answer.Err.Error(), "context canceled") {
				t.Errorf("task %d without a context: %v", i, answer.Err)
			}
		}
		if len(client.EnqueueAll(t.Context())) != 0 {
			t.Error("results for no tasks")
		}
	})
}

func canceled(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}
