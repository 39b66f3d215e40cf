package scheduler

import (
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/testutil/redistest"
)

// TestPriorityOption: a task's own priority replaces its rule's, wherever it was given.
func TestPriorityOption(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		client := NewClient(rdb)
		defer client.Close()
		tasks := asynq.NewInspectorFromRedisClient(rdb)
		rule := Rule{Priority: PriorityLow}
		plain := asynq.NewTask("job", nil, asynq.MaxRetry(2))
		of := &scope{Server: &Server{}}
		for _, test := range []struct {
			name string
			task *asynq.Task
			opts []asynq.Option
			want PriorityLevel
		}{
			{"rule's", plain, nil, PriorityLow},
			{"task's", NewTask("job", nil, Priority(PriorityHigh), asynq.MaxRetry(2)), nil, PriorityHigh},
			{"enqueue's", plain, []asynq.Option{Priority(PriorityHigh)}, PriorityHigh},
			{"enqueue's over task's", NewTask("job", nil, Priority(PriorityHigh), asynq.MaxRetry(2)), []asynq.Option{Priority(PriorityNormal)}, PriorityNormal},
			{"scheduled", plain, []asynq.Option{Priority(PriorityHigh), asynq.ProcessIn(time.Hour)}, PriorityHigh},
			{"unique", plain, []asynq.Option{Priority(PriorityHigh), asynq.Unique(time.Hour)}, PriorityHigh},
			{"unique and scheduled", plain, []asynq.Option{Priority(PriorityHigh), asynq.Unique(time.Hour), asynq.ProcessIn(time.Hour), asynq.Queue("q")}, PriorityHigh},
		} {
			info, err := client.Enqueue(test.task, test.opts...)
			if err != nil {
				t.Fatal(err)
			}
			if info, err = tasks.GetTaskInfo(info.Queue, info.ID); err != nil {
				t.Fatal(err)
			}
			if info.MaxRetry != 2 {
				t.Errorf("%s: max retry %d, want the task's own", test.name, info.MaxRetry)
			}
			if got := of.waitdbJob(&attempt{task: asynq.NewTaskWithHeaders("job", nil, info.Headers), rule: rule}).Priority; got != waitdbPriority[test.want] {
				t.Errorf("%s: priority %v of headers %v, want %v", test.name, got, info.Headers, test.want)
			}
		}
		info, err := client.Enqueue(plain)
		if err == nil {
			info, err = tasks.GetTaskInfo(info.Queue, info.ID)
		}
		if err != nil || len(info.Headers)+len(plain.Headers()) != 0 { // nor those of a trace
			t.Errorf("a task without a priority has got headers: %+v, %v, %v", info, err, plain.Headers())
		}
	})
}

// TestNewTask_SharedOptions: options may be shared, because neither NewTask nor Enqueue writes into
// them.
func TestNewTask_SharedOptions(t *testing.T) {
	_, rdb := redistest.Mini(t)
	client := NewClient(rdb)
	shared := make([]asynq.Option, 0, 8)
	shared = append(shared, Priority(PriorityHigh))
	task := NewTask("job", nil, shared...)
	var all sync.WaitGroup
	for i := range 20 {
		for _, own := range []*asynq.Task{task, NewTask("job", nil, shared...)} {
			all.Go(func() {
				info, err := client.Enqueue(own, append(shared[:1:1], asynq.MaxRetry(i))...)
				if err != nil || info.MaxRetry != i {
					t.Errorf("job %d: %+v, %v", i, info, err)
				}
			})
		}
	}
	all.Wait()
}
