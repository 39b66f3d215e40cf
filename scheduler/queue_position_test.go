package scheduler

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/asynqdb"
)

// TestRetryPosition: a job that has failed, or put itself back, runs when its backoff is over,
// before jobs that came after it, or behind all waiting jobs if its rule says so.
func TestRetryPosition(t *testing.T) {
	slow(t)
	for name, test := range map[string]struct {
		position RetryPosition
		err      error
	}{
		"failed, keep":   {PositionKeep, errors.New("no")},
		"failed, back":   {PositionBack, errors.New("no")},
		"put back, keep": {PositionKeep, RetryAfter(5 * time.Second)},
		"put back, back": {PositionBack, RetryAfter(5 * time.Second)},
	} {
		t.Run(name, func(t *testing.T) {
			failed := map[string]int{}
			handle := func(ctx context.Context, _ *asynq.Task) error {
				id, _ := asynq.GetTaskID(ctx)
				if failed[id]++; (id == "job-0000" || id == "job-0020") && failed[id] <= 2 {
					return test.err
				}
				return nil
			}
			rule := needs("a")
			rule.Retry, rule.RetryPosition = constantDelay(5*time.Second), test.position
			virtual(t, settings{config: quick, limits: onePerSecond, rule: always(rule), handle: handle}, func(t *testing.T, st *stack) {
				st.enqueueN(60, "a", asynq.MaxRetry(5))
				time.Sleep(2 * time.Minute)
				st.wantRuns(64)
				order := st.order()
				for id, first := range map[string]int{"job-0000": 0, "job-0020": 22} {
					var at []int
					for i, ran := range order {
						if ran == id {
							at = append(at, i)
						}
					}
					if test.position == PositionBack {
						if at[1] < 60 || at[2] < 60 {
							t.Errorf("%s ran as number %v, want its retries behind all waiting jobs", id, at)
						}
					} else if at[1]-at[0] > 10 || at[2]-at[1] > 10 || at[0] > first {
						t.Errorf("%s ran as number %v, want it again after its backoff of 5 s", id, at)
					}
				}
			})
		})
	}
}

// TestQueuePosition_RunAgain: an archived job that an operator runs again waits behind the jobs that
// wait already, also if it had a position of a retry.
func TestQueuePosition_RunAgain(t *testing.T) {
	for _, retries := range []int{0, 1} {
		t.Run(strconv.Itoa(retries), func(t *testing.T) {
			var runs int
			handle := func(ctx context.Context, _ *asynq.Task) error {
				if id, _ := asynq.GetTaskID(ctx); id != "it" {
					return nil
				}
				if runs++; runs <= 1+retries {
					return errors.New("no")
				}
				return nil
			}
			rule := needs("a")
			rule.Retry = constantDelay(time.Second)
			virtual(t, settings{config: quick, limits: onePerSecond, rule: always(rule), handle: handle}, func(t *testing.T, st *stack) {
				st.enqueue(needing("a"), asynq.TaskID("it"), asynq.MaxRetry(retries))
				time.Sleep(30 * time.Second)
				st.enqueueN(20, "a")
				time.Sleep(5 * time.Second)
				st.must(st.tasks.RunTask("default", "it"))
				time.Sleep(time.Minute)
				order := st.order()
				if last := slices.Index(order[1+retries:], "it"); last < 18 {
					t.Errorf("with %d retries the job that was run again came as number %d of 21: %v", retries, last+1, order)
				}
			})
		})
	}
}

// TestRetryPosition_WaitsAgain: the MaxWait of a retry begins when it is denied. Its decision has
// the wait since its backoff ended.
func TestRetryPosition_WaitsAgain(t *testing.T) {
	var waited []time.Duration
	handle := func(ctx context.Context, _ *asynq.Task) error {
		if id, _ := asynq.GetTaskID(ctx); id == "it" {
			d, _ := GetDecision(ctx)
			if waited = append(waited, d.Waited); len(waited) <= 2 {
				return errors.New("no")
			}
		}
		return nil
	}
	rule := needs("a")
	rule.MaxWait, rule.Retry = 10*time.Second, constantDelay(time.Minute)
	virtual(t, settings{config: quick, limits: onePerSecond, rule: always(rule), handle: handle}, func(t *testing.T, st *stack) {
		st.enqueueN(5, "a")
		st.enqueue(needing("a"), asynq.TaskID("it"), asynq.MaxRetry(5))
		time.Sleep(50 * time.Second)
		st.enqueueN(40, "a") // it goes before them, and most of them are archived after 10 s
		time.Sleep(20 * time.Second)
		st.must(st.limiter.Pause(t.Context(), "a"))
		time.Sleep(50 * time.Second) // its second retry waits
		st.enqueueN(5, "a")
		time.Sleep(8 * time.Second)
		st.must(st.limiter.Resume(t.Context(), "a"))
		time.Sleep(time.Minute)
		if len(waited) != 3 || slices.Max(waited) > 10*time.Second {
			t.Errorf("the job ran after %v, want three waits of at most 10 s", waited)
		}
	})
}

// TestQueuePosition_CopiedHeaders: a follow-up that is enqueued with the headers of the job before
// it waits behind all others, also if it takes over the ID.
func TestQueuePosition_CopiedHeaders(t *testing.T) {
	for _, id := range []string{"follow-up", "it"} {
		t.Run(id, func(t *testing.T) {
			var headers map[string]string
			handle := func(ctx context.Context, task *asynq.Task) error {
				if own, _ := asynq.GetTaskID(ctx); own == "it" && headers == nil {
					if task.Headers()[queuePositionHeader] == "" {
						return errors.New("no")
					}
					headers = task.Headers()
				}
				return nil
			}
			rule := needs("a")
			rule.Retry = constantDelay(time.Second)
			virtual(t, settings{config: quick, limits: onePerSecond, rule: always(rule), handle: handle}, func(t *testing.T, st *stack) {
				st.enqueue(needing("a"), asynq.TaskID("it"), asynq.MaxRetry(5))
				st.enqueueN(20, "a")
				time.Sleep(10 * time.Second)
				if headers == nil {
					t.Fatal("the job has not come again")
				}
				st.enqueue(asynq.NewTaskWithHeaders("job", []byte("a"), headers), asynq.TaskID(id))
				if id != "it" { // Redis loses its record, so it asks again, and is not new any more
					time.Sleep(time.Second)
					_, err := st.limiter.Forget(t.Context(), job{Queue: "default", ID: id})
					st.must(err)
					st.must(st.tasks.RunTask("default", id))
				}
				time.Sleep(30 * time.Second)
				st.wantRuns(23)
				if last := st.order()[22]; last != id {
					t.Errorf("the last run is of %s, want %s behind the others", last, id)
				}
			})
		})
	}
}

// TestQueuePosition_Header: the header of a job is read as it was written, and for no other job.
func TestQueuePosition_Header(t *testing.T) {
	own, at := job{Queue: "default", ID: "a"}, time.UnixMicro(1_700_000_000_000_000)
	for _, want := range []queuePosition{{}, {queuedAt: at, retryAt: at.Add(time.Second)}, {queuedAt: at, retryAt: at, notStarted: true, denials: 3}} {
		message, err := asynqdb.ParseMessage(want.writeTo(own, nil))
		if err != nil {
			t.Fatal(err)
		}
		for reader, want := range map[job]queuePosition{own: want, {Queue: "default", ID: "b"}: {}, {Queue: "low", ID: "a"}: {}} {
			if got := queuePositionOf(reader, message.Task); got != want {
				t.Errorf("%v reads the header of %v as %+v, want %+v", reader, own, got, want)
			}
		}
	}
	for _, text := range []string{"", "1 2", "1 2\ndefault\na", "x 2 0\ndefault\na", "0 2 0\ndefault\na"} {
		if got := queuePositionOf(own, asynq.NewTaskWithHeaders("job", nil, map[string]string{queuePositionHeader: text})); got != (queuePosition{}) {
			t.Errorf("%q is read as %+v", text, got)
		}
	}
}
