package main

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/scheduler"
)

// start is a job that ran. Times are microseconds by this machine's clock, which is Redis's, too.
type start struct {
	job
	admitted int64 // when the job got its permits
	started  int64 // when the handler began
}

// history is what happened in one run. It is safe for concurrent use.
type history struct {
	mu       sync.Mutex
	starts   []start
	denials  int
	all      chan struct{}
	want     int
	enqueued []int64 // by the job's number; empty unless jobs arrive during the run
}

func newHistory(jobs int) *history {
	return &history{want: jobs, all: make(chan struct{})}
}

// started records a job that runs, and how often headgate denied it before.
func (h *history) started(j job, admitted int64, denials int) {
	now := time.Now().UnixMicro()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.denials += denials
	h.starts = append(h.starts, start{j, admitted, now})
	if len(h.starts) == h.want {
		close(h.all)
	}
}

func (h *history) denied() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.denials++
}

// byAdmission returns the starts in the order of admission.
func (h *history) byAdmission() []start {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.SortedStableFunc(slices.Values(h.starts), func(a, b start) int { return int(a.admitted - b.admitted) })
}

// visit is one call of a limiter. at is the time of the decision, in microseconds of Redis's clock.
type visit struct{ at int64 }

type visitKey struct{}

func withVisit(ctx context.Context) (context.Context, *visit) {
	v := &visit{}
	return context.WithValue(ctx, visitKey{}, v), v
}

// noteVisit notes the time of a decision in the visit of a context.
func noteVisit(ctx context.Context, at time.Time) {
	if v, ok := ctx.Value(visitKey{}).(*visit); ok {
		v.at = at.UnixMicro()
	}
}

// visited gives the context of every job a visit.
func visited(next asynq.Handler) asynq.Handler {
	return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		ctx, _ = withVisit(ctx)
		return next.ProcessTask(ctx, task)
	})
}

// visitOf returns when the job of a context got its permits, by Redis's clock. If they were granted
// in advance, that is after the last decision. Without a decision it is 0.
func visitOf(ctx context.Context) int64 {
	if d, ok := scheduler.GetDecision(ctx); ok {
		return d.At.Add(d.BeginIn).UnixMicro()
	}
	if v, ok := ctx.Value(visitKey{}).(*visit); ok {
		return v.at
	}
	return 0
}
