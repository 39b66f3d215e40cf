package cron

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/testutil/redistest"
)

func TestPayloadFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := redistest.Mini(t)
		q := newJobQueue()
		entries := []Entry{hourly(func(e *Entry) {
			e.Zone = "Asia/Tokyo"
			e.Payload = func(tick time.Time) ([]byte, error) {
				if tick.Hour() == 10 { // 1:00 in UTC
					return nil, errors.New("no such account")
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
		want := "failed: payload: no such account"
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

// failingEnqueuer fails for one job, as if its payload were too large.
type failingEnqueuer struct {
	*jobQueue
	id string
}

func (r failingEnqueuer) EnqueueContext(ctx context.Context, task *asynq.Task, opts ...asynq.Option) (*asynq.TaskInfo, error) {
	for _, option := range opts {
		if option.Type() == asynq.TaskIDOpt && option.Value() == r.id {
			return nil, errors.New("payload is too large")
		}
	}
	return r.jobQueue.EnqueueContext(ctx, task, opts...)
}

func TestRun_FailingTick_LeavesTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := redistest.Mini(t)
		q := newJobQueue()
		r := startReplica(t, m, failingEnqueuer{q, sweepIDs(2)[0]}, []Entry{hourly(nil)}, nil)
		until(4, 30)
		r.end()
		checkIDs(t, q.ids(), sweepIDs(1, 3, 4))
		if list, err := r.List(t.Context(), 1); err != nil || list[0].Failed != 1 {
			t.Errorf("got %+v, %v; want one failure", list, err)
		}
	})
}

// A payload that panics fails its tick alone.
func TestPayloadPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := redistest.Mini(t)
		q := newJobQueue()
		r := startReplica(t, m, q, []Entry{hourly(func(e *Entry) {
			e.Payload = func(tick time.Time) ([]byte, error) {
				if tick.Hour() == 1 {
					panic("no such account")
				}
				return nil, nil
			}
		})}, nil)
		until(1, 30)
		list, err := r.List(t.Context(), 1)
		if want := "failed: payload: panic: no such account"; err != nil || list[0].Outcome != want {
			t.Errorf("got %+v, %v; want %s", list, err, want)
		}
		until(2, 30)
		r.end()
		checkIDs(t, q.ids(), sweepIDs(2))
	})
}

// panicking is an Enqueuer that panics once.
type panicking struct {
	*jobQueue
	panicked bool
}

func (p *panicking) EnqueueContext(ctx context.Context, task *asynq.Task, opts ...asynq.Option) (*asynq.TaskInfo, error) {
	if !p.panicked {
		p.panicked = true
		panic("no such queue")
	}
	return p.jobQueue.EnqueueContext(ctx, task, opts...)
}

// TestEnqueuerPanics: the tick is enqueued again after a pause.
func TestEnqueuerPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := redistest.Mini(t)
		q := &panicking{jobQueue: newJobQueue()}
		r := startReplica(t, m, q, []Entry{hourly(nil)}, nil)
		until(1, 30)
		r.end()
		checkIDs(t, q.ids(), sweepIDs(1))
	})
}
