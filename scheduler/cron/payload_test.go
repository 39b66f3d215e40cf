package cron

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/testutil/redistest"
)

// codeFailures are the ways in which a program's code can fail, with the errors that they become.
var codeFailures = []struct {
	fail func() error
	err  string
}{
	{func() error { return errors.New("no such account") }, "no such account"},
	{func() error { panic("no such account") }, "panic: no such account"},
	{func() error { runtime.Goexit(); return nil }, "runtime.Goexit"},
}

func TestPayload_Failure_FailsItsTick(t *testing.T) {
	for _, tc := range codeFailures {
		synctest.Test(t, func(t *testing.T) {
			m, _ := redistest.Mini(t)
			q := newJobQueue()
			entries := []Entry{hourly(func(e *Entry) {
				e.Zone = "Asia/Tokyo"
				e.Payload = func(tick time.Time) ([]byte, error) {
					if tick.Hour() == 10 { // 1:00 in UTC
						return nil, tc.fail()
					}
					return []byte(tick.Format(time.RFC3339)), nil
				}
			})}
			a, b := startReplica(t, m, q, entries, nil), startReplica(t, m, q, entries, nil)
			until(1, 30)
			list, err := a.List(t.Context(), 2)
			if err != nil {
				t.Fatal(err)
			}
			want := "failed: payload: " + tc.err
			if s := list[0]; s.Outcome != want || s.Failed != 1 || s.Last.Format("15:04 MST") != "10:00 JST" {
				t.Errorf("got %+v, want %s", s, want)
			}
			until(2, 30)
			a.end()
			b.end()
			checkIDs(t, q.ids(), sweepIDs(2))
			if got := string(q.tasks[0].Payload()); got != "2000-01-01T11:00:00+09:00" {
				t.Errorf("payload is %s", got)
			}
		})
	}
}

// failingEnqueuer fails for the first calls with the ID of one job.
type failingEnqueuer struct {
	*jobQueue
	id    string
	times int32
	fail  func() error
	calls atomic.Int32
}

func (f *failingEnqueuer) EnqueueContext(ctx context.Context, task *asynq.Task, opts ...asynq.Option) (*asynq.TaskInfo, error) {
	for _, option := range opts {
		if option.Type() == asynq.TaskIDOpt && option.Value() == f.id && f.calls.Add(1) <= f.times {
			return nil, f.fail()
		}
	}
	return f.jobQueue.EnqueueContext(ctx, task, opts...)
}

// A tick whose job cannot be enqueued is tried again after a pause. If it keeps failing, the next
// tick is not delayed.
func TestEnqueuer_Failure_TriesAgain(t *testing.T) {
	for _, tc := range codeFailures {
		for times, want := range map[int32][]int{1: {1, 2, 3, 4}, 10_000: {1, 3, 4}} {
			synctest.Test(t, func(t *testing.T) {
				m, _ := redistest.Mini(t)
				q := &failingEnqueuer{jobQueue: newJobQueue(), id: sweepIDs(2)[0], times: times, fail: tc.fail}
				r := startReplica(t, m, q, []Entry{hourly(nil)}, nil)
				until(4, 30)
				r.end()
				checkIDs(t, q.ids(), sweepIDs(want...))
				list, err := r.List(t.Context(), 1)
				if err != nil || list[0].Failed != int64(4-len(want)) || q.calls.Load() > 8 {
					t.Errorf("%s: got %+v, %v, after %d calls; want %d failures", tc.err, list, err, q.calls.Load(), 4-len(want))
				}
			})
		}
	}
}
