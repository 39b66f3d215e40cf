package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/throttle"
)

// TestRetryPosition_Keep: a job that has failed, or put itself back, runs when its
// backoff is over, before those that came after it; and behind all who wait where the rule
// says so.
func TestRetryPosition_Keep(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	for _, test := range []struct {
		name string
		at   RetryPosition
		err  error
	}{
		{"failed", PositionKeep, errors.New("no")},
		{"failed, at the back", PositionBack, errors.New("no")},
		{"put itself back", PositionKeep, RetryAfter(5 * time.Second)},
		{"put itself back, at the back", PositionBack, RetryAfter(5 * time.Second)},
	} {
		t.Run(test.name, func(t *testing.T) {
			policy := &RetryPolicy{Backoff: Backoff{Growth: GrowthConstant, Base: 5 * time.Second, Jitter: JitterNone}}
			virtual(t, settings{config: asynq.Config{Concurrency: 4, DelayedTaskCheckInterval: time.Second}, limits: []throttle.Limit{funnel("a", 1, 1)}, rule: func(*asynq.Task) (Rule, error) {
				return Rule{Needs: []throttle.Need{{Limit: "a"}}, Retry: policy, RetryPosition: test.at}, nil
			}}, func(t *testing.T, st *stack) {
				failed := map[string]int{}
				st.handle = func(ctx context.Context, _ *asynq.Task) error {
					id, _ := asynq.GetTaskID(ctx)
					if failed[id]++; (id == "job-000" || id == "job-020") && failed[id] <= 2 {
						return test.err
					}
					return nil
				}
				for i := range 100 {
					st.enqueue(needing("a"), asynq.TaskID(fmt.Sprintf("job-%03d", i)), asynq.MaxRetry(5))
				}
				time.Sleep(3 * time.Minute)
				var order []string
				for _, r := range st.ran() {
					order = append(order, r.id)
				}
				if len(order) != 104 {
					t.Fatalf("%d runs, want 104: %v", len(order), order)
				}
				for id, first := range map[string]int{"job-000": 0, "job-020": 22} {
					at := indexes(order, id)
					if test.at == PositionBack {
						if at[1] < 100 || at[2] < 100 {
							t.Errorf("%s ran as number %v, want its retries behind all who wait", id, at)
						}
					} else if slices.ContainsFunc([]int{1, 2}, func(n int) bool { return at[n]-at[n-1] > 10 }) || at[0] > first {
						t.Errorf("%s ran as number %v, want it again after its backoff of 5 s", id, at)
					}
				}
			})
		})
	}
}

// TestRetryPosition_WaitsAnew: a retry has its MaxWait from the moment on that it is denied, and is
// said to have waited since it came again.
func TestRetryPosition_WaitsAnew(t *testing.T) {
	policy := &RetryPolicy{Backoff: Backoff{Growth: GrowthConstant, Base: time.Minute, Jitter: JitterNone}}
	virtual(t, settings{config: asynq.Config{Concurrency: 4, DelayedTaskCheckInterval: time.Second}, limits: []throttle.Limit{funnel("a", 1, 1)}, rule: func(*asynq.Task) (Rule, error) {
		return Rule{Needs: []throttle.Need{{Limit: "a"}}, MaxWait: 10 * time.Second, Retry: policy}, nil
	}}, func(t *testing.T, st *stack) {
		var waited []time.Duration
		st.handle = func(ctx context.Context, _ *asynq.Task) error {
			if id, _ := asynq.GetTaskID(ctx); id == "job" {
				d, _ := GetDecision(ctx)
				if waited = append(waited, d.Waited); len(waited) <= 2 {
					return errors.New("no")
				}
			}
			return nil
		}
		fill := func(n int) {
			for range n {
				st.enqueue(needing("a"))
			}
		}
		fill(5)
		st.enqueue(needing("a"), asynq.TaskID("job"), asynq.MaxRetry(5))
		time.Sleep(50 * time.Second)
		fill(40) // of which it stands before all, and which are archived after 10 s
		time.Sleep(20 * time.Second)
		_ = st.limiter.Pause(t.Context(), "a")
		time.Sleep(50 * time.Second) // its second retry waits
		fill(5)
		time.Sleep(8 * time.Second)
		_ = st.limiter.Resume(t.Context(), "a")
		time.Sleep(time.Minute)
		if len(waited) != 3 || slices.ContainsFunc(waited, func(d time.Duration) bool { return d > 10*time.Second }) {
			t.Errorf("the job ran after %v, want three waits of at most 10 s", waited)
		}
	})
}

func indexes(all []string, one string) (at []int) {
	for i, id := range all {
		if id == one {
			at = append(at, i)
		}
	}
	return at
}

// TestQueuePosition_CopiedHeaders: a follow-up that is enqueued with the headers of the job that it follows
// stands behind all who wait; so does one that takes over its ID, too.
func TestQueuePosition_CopiedHeaders(t *testing.T) {
	for _, id := range []string{"follow-up", "job"} {
		t.Run(id, func(t *testing.T) {
			policy := &RetryPolicy{Backoff: Backoff{Growth: GrowthConstant, Base: time.Second, Jitter: JitterNone}}
			virtual(t, settings{config: quick, limits: []throttle.Limit{funnel("a", 1, 1)}, rule: func(*asynq.Task) (Rule, error) {
				return Rule{Needs: []throttle.Need{{Limit: "a"}}, Retry: policy}, nil
			}}, func(t *testing.T, st *stack) {
				var headers map[string]string
				st.handle = func(ctx context.Context, task *asynq.Task) error {
					if own, _ := asynq.GetTaskID(ctx); own == "job" && headers == nil {
						if _, stands := task.Headers()[queuePositionHeader]; !stands {
							return errors.New("no")
						}
						headers = task.Headers()
					}
					return nil
				}
				st.enqueue(needing("a"), asynq.TaskID("job"), asynq.MaxRetry(5))
				for range 20 {
					st.enqueue(needing("a"))
				}
				time.Sleep(10 * time.Second)
				if headers == nil {
					t.Fatal("the job has not come again")
				}
				st.enqueue(asynq.NewTaskWithHeaders("job", []byte("a"), headers), asynq.TaskID(id))
				if id != "job" { // Redis loses its record, so it asks anew, and is not new any more
					time.Sleep(time.Second)
					_, err := st.limiter.Forget(t.Context(), job{Queue: "default", ID: id})
					st.must(err)
					st.must(st.tasks.RunTask("default", id))
				}
				time.Sleep(time.Minute)
				ran := st.ran()
				if last := ran[len(ran)-1]; len(ran) != 23 || last.id != id {
					t.Errorf("of %d runs the last is %s, want %s behind the others", len(ran), last.id, id)
				}
			})
		})
	}
}

// TestQueuePosition_Header: the header of a job is read as it was written, and for no other job.
func TestQueuePosition_Header(t *testing.T) {
	msg := queuePosition{}.writeTo(job{}, nil)
	if len(msg) != 0 {
		t.Errorf("a job that stood nowhere has the message %q", msg)
	}
	own, at := job{Queue: "default", ID: "a"}, time.UnixMicro(1_700_000_000_000_000)
	for _, want := range []queuePosition{{queuedAt: at, retryAt: at.Add(time.Second)}, {queuedAt: at, retryAt: at, notStarted: true}, {queuedAt: at, retryAt: at, notStarted: true, denials: 3}} {
		message, err := asynqdb.ParseMessage(want.writeTo(own, nil))
		if err != nil {
			t.Fatal(err)
		}
		task := message.Task()
		if got := queuePositionOf(own, task); got != want {
			t.Errorf("%+v is read as %+v", want, got)
		}
		for _, other := range []job{{Queue: "default", ID: "b"}, {Queue: "low", ID: "a"}} {
			if got := queuePositionOf(other, task); got != (queuePosition{}) {
				t.Errorf("%v reads the header of %v as its own: %+v", other, own, got)
			}
		}
	}
	for _, text := range []string{"", "1 2", "1 2\ndefault\na", "x 2 0\ndefault\na", "0 2 0\ndefault\na"} {
		if got := queuePositionOf(own, asynq.NewTaskWithHeaders("job", nil, map[string]string{queuePositionHeader: text})); got != (queuePosition{}) {
			t.Errorf("%q is read as %+v", text, got)
		}
	}
}
