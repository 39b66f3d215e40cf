package inspect

import (
	"context"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/forecast"
	"github.com/headgate/headgate/internal/stats"
)

// Status is the state of all queues, limits and workers.
type Status struct {
	At     time.Time     `json:"at"` // by Redis's clock
	Queues []QueueStatus `json:"queues"`
	Limits []Limit       `json:"-"` // by name
	// ETA is the time at which the last waiting or pending job would run.
	ETA forecast.Estimate `json:"-"`
	// HasBacklog reports whether any job waits or is pending.
	HasBacklog bool            `json:"-"`
	Workers    []stats.Process `json:"workers"`
	// WithoutRule is the number of pending jobs whose rule is unknown. ETA does not include them.
	WithoutRule int `json:"pending_not_counted,omitempty"`
}

// QueueStatus counts the jobs of a queue by state. Done and FailedAttempts count the attempts since the
// queue was created.
type QueueStatus struct {
	Queue          string  `json:"queue"`
	Paused         bool    `json:"paused"`
	Pending        int     `json:"pending"`
	Waiting        int     `json:"waiting"`
	Retry          int     `json:"retry"`
	Scheduled      int     `json:"scheduled"`
	Running        int     `json:"running"`
	Archived       int     `json:"archived"`
	Done           int     `json:"done"`
	FailedAttempts int     `json:"failed_attempts"`
	Rate           float64 `json:"done_a_second"`
}

// status reads the state of the queues, limits and workers of one scope.
func (q *Queues) status(ctx context.Context) (s Status, err error) {
	if s.At, err = q.rdb.Time(ctx).Result(); err != nil {
		return s, err
	}
	summaries, err := stats.ReadSummaries(ctx, q.rdb, q.scope, stats.StreamID(s.At.Add(-RecentWindow)))
	if err != nil {
		return s, err
	}
	limits, done := CountRecent(summaries, s.At)
	f, err := q.Forecast(ctx, forecast.Options{})
	if err != nil {
		return s, err
	}
	waiting, _, _, err := q.Limiter.BacklogStats(ctx)
	if err != nil {
		return s, err
	}
	infos, err := q.ReadQueues(ctx, "", WaitingByQueue(f, waiting))
	if err != nil {
		return s, err
	}
	s.Queues, s.WithoutRule, s.HasBacklog = []QueueStatus{}, f.WithoutRule, waiting+f.Pending > 0
	for _, info := range infos {
		of := QueueStatus{
			Queue: info.Queue, Paused: info.Paused, Pending: info.Pending, Waiting: info.Waiting, Retry: info.Retry,
			Scheduled: info.Scheduled, Running: info.Active, Archived: info.Archived,
			Done: info.ProcessedTotal - info.FailedTotal, FailedAttempts: info.FailedTotal,
		}
		for t, n := range done {
			if t.Queue == of.Queue {
				of.Rate += rate(n)
			}
		}
		s.Queues = append(s.Queues, of)
	}
	last, unknown := f.Last()
	if s.ETA = last; unknown != nil {
		s.ETA = unknown.OrLater(last)
	}
	snapshot := Snapshot{Now: s.At, Forecast: f, Recent: limits}
	sample, err := stats.ReadBacklogSample(ctx, q.rdb, q.scope)
	if err != nil {
		return s, err
	}
	if sample != nil {
		snapshot.Demand = sample.Limits
	}
	if err := snapshot.ReadLimits(ctx, q.Limiter); err != nil {
		return s, err
	}
	if s.Limits, err = snapshot.States(ctx, q.Limiter, math.MaxInt); err != nil {
		return s, err
	}
	slices.SortFunc(s.Limits, func(a, b Limit) int { return strings.Compare(a.Name, b.Name) })
	s.Workers, err = stats.ReadProcesses(ctx, q.rdb, q.scope)
	return s, err
}

// WaitingByQueue returns a function that estimates the number of waiting jobs of a queue. The forecast
// may have read a part of the waiting jobs only. all is the number of all waiting jobs, and each queue
// has the same share of them as of the jobs in the forecast.
func WaitingByQueue(f *forecast.Forecast, all int) func(queue string) int {
	if f == nil {
		return func(string) int { return 0 }
	}
	waiting := f.Waiting()
	return func(queue string) int { return waiting[queue] * all / max(1, f.Jobs) }
}
