package scheduler

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/throttle"
)

// A replica that has not heard of the last lanes becomes the limiter's primary: lanes get
// numbers again that others had there before, and all are called.
func TestNoLaneIsForgottenAfterAFailover(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	sentinel := redistest.RunSentinel(t)
	limiter := sentinel.Client()
	t.Cleanup(func() { _ = limiter.Close() })
	const before, after = 40, 20 // lanes
	ran := make(chan string, 2*(before+after)+1)
	st := start(t, redistest.Real(t), settings{
		redis: limiter, passes: time.Hour, config: asynq.Config{Concurrency: 10},
		limits: []throttle.Limit{funnel("host", 2, 1)},
		rule: func(task *asynq.Task) (Rule, error) {
			return Rule{Needs: []throttle.Need{{Limit: "host", Key: string(task.Payload())}}}, nil
		},
		handle: func(ctx context.Context, _ *asynq.Task) error {
			id, _ := asynq.GetTaskID(ctx)
			ran <- id
			return nil
		},
	})
	enqueue := func(name string, lanes int) {
		for i := range lanes {
			for k := range 2 { // the second one waits
				host := fmt.Sprint(name, i)
				st.enqueue(NewTask("job", []byte(host)), asynq.TaskID(fmt.Sprint(host, "-", k)))
			}
		}
	}
	wait := func(jobs int) {
		t.Helper()
		late := time.After(15 * time.Second)
		for i := range jobs {
			select {
			case <-ran:
			case <-late:
				t.Fatalf("%d of %d jobs ran; lanes: %v", i, jobs, st.limits.ZRange(t.Context(), scopePrefix+"lanes", 0, -1))
			}
		}
	}
	st.enqueue(NewTask("job", []byte("first")))
	wait(1)
	if n, err := limiter.Wait(t.Context(), 1, 0).Result(); n != 1 || err != nil {
		t.Fatalf("%d replicas are in step (%v), want 1", n, err)
	}
	st.must(sentinel.Lag())
	enqueue("before", before)
	wait(2 * before)
	st.must(sentinel.FailOver())
	enqueue("after", after)
	wait(2 * after)
	if n := st.limits.Get(t.Context(), scopePrefix+"seq").Val(); n != fmt.Sprint(after) {
		t.Errorf("the last lane's number is %s, want %d: the test shows nothing", n, after)
	}
}
