package main

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/scheduler"
)

// start is a job that got its permits and ran. Moments are microseconds. The
// redis-server runs on this machine, so its clock is this program's.
type start struct {
	job
	admitted int64 // when the limiter took the permits, by Redis's clock
	started  int64 // when the handler began
}

// history is what happened in one run. It is safe for concurrent use.
type history struct {
	mu       sync.Mutex
	starts   []start
	denials  int
	enqueued []int64 // by the job's number, only where jobs arrive
	all      chan struct{}
	want     int
}

func newHistory(jobs int) *history {
	return &history{want: jobs, all: make(chan struct{})}
}

// started notes a job that runs, and how often headgate denied it before. A job that runs twice counts twice, which the
// oracle then sees.
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

func (h *history) enqueuedAt(at int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.enqueued = append(h.enqueued, at)
}

func (h *history) count() (starts, denials int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.starts), h.denials
}

// byAdmission are the starts in the order in which the limiter let them.
func (h *history) byAdmission() []start {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.SortedStableFunc(slices.Values(h.starts), func(a, b start) int { return int(a.admitted - b.admitted) })
}

// visit is one call of a limiter: those below it in the call note when it was
// decided, those above it read that.
type visit struct{ at int64 }

type visitKey struct{}

func withVisit(ctx context.Context) (context.Context, *visit) {
	v := &visit{}
	return context.WithValue(ctx, visitKey{}, v), v
}

// noteVisit keeps the moment of a decision for whoever made the context.
func noteVisit(ctx context.Context, at time.Time) {
	if v, ok := ctx.Value(visitKey{}).(*visit); ok {
		v.at = at.UnixMicro()
	}
}

// visited gives every job that a handler gets a place for noteVisit.
func visited(next asynq.Handler) asynq.Handler {
	return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		ctx, _ = withVisit(ctx)
		return next.ProcessTask(ctx, task)
	})
}

// visitOf is the moment of the last decision on the job of a context, by Redis's clock.
func visitOf(ctx context.Context) int64 {
	if d, ok := scheduler.GetDecision(ctx); ok {
		return d.At.Add(d.BeginIn).UnixMicro()
	}
	if v, ok := ctx.Value(visitKey{}).(*visit); ok {
		return v.at
	}
	return 0
}
