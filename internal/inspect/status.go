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

// Status is how far all work is.
type Status struct {
	At     time.Time     `json:"at"` // by Redis's clock
	Queues []QueueStatus `json:"queues"`
	Limits []Limit       `json:"-"`
	// Last is when the last job would run that waits or is pending, and Left whether there is one.
	ETA        forecast.Estimate `json:"-"`
	HasBacklog bool              `json:"-"`
	Workers    []stats.Process   `json:"workers"`
	// Uncounted is how many pending jobs Last does not take into account, since it is not known
	// what they will ask for.
	Uncounted int `json:"pending_not_counted,omitempty"`
}

// Queue is how many jobs of a queue there are, by state.
type QueueStatus struct {
	Queue     string `json:"queue"`
	Paused    bool   `json:"paused"`
	Pending   int    `json:"pending"`
	Waiting   int    `json:"waiting"`
	Retry     int    `json:"retry"`
	Scheduled int    `json:"scheduled"`
	Running   int    `json:"running"`
	Archived  int    `json:"archived"`
	Done      int    `json:"done"`   // since the scope began, as the rest
	Failed    int    `json:"failed"` // jobs that failed for good
	// FailedAttempts counts each failed attempt, of jobs that run again as well.
	FailedAttempts int     `json:"failed_attempts"`
	Rate           float64 `json:"done_a_second"`
}

// Status counts all jobs.
func (q *Queues) Status(ctx context.Context) (Status, error) {
	past, err := q.past(ctx)
	if err != nil {
		return Status{}, err
	}
	forecast, err := q.Forecast(ctx, forecast.Options{})
	if err != nil {
		return Status{}, err
	}
	waiting, _, _, err := q.Limiter.BacklogStats(ctx)
	if err != nil {
		return Status{}, err
	}
	infos, err := q.ReadQueues(ctx, "", WaitingByQueue(forecast, waiting))
	if err != nil {
		return Status{}, err
	}
	s := Status{At: past.now, Queues: []QueueStatus{}, Uncounted: forecast.Uncounted, HasBacklog: waiting+forecast.Pending > 0}
	for _, info := range infos {
		of := QueueStatus{
			Queue: info.Queue, Paused: info.Paused, Pending: info.Pending, Waiting: info.Waiting, Retry: info.Retry,
			Scheduled: info.Scheduled, Running: info.Active, Archived: info.Archived,
		}
		past.fill(&of)
		s.Queues = append(s.Queues, of)
	}
	last, unknown := forecast.Last()
	if s.ETA = last; unknown != nil {
		s.ETA = unknown.OrLater(last)
	}
	if s.Limits, err = q.limits(ctx, forecast, past); err != nil {
		return s, err
	}
	s.Workers, err = stats.ReadProcesses(ctx, q.rdb, q.scope)
	return s, err
}

// WaitingBy tells how many of so many waiting jobs a queue has: as the forecast has it, or as its
// sample says. A nil forecast has none.
func WaitingByQueue(f *forecast.Forecast, all int) func(queue string) int {
	if f == nil {
		return func(string) int { return 0 }
	}
	waiting := f.Waiting()
	return func(queue string) int { return waiting[queue] * all / max(1, f.Jobs) }
}

// past is what has become of jobs since the scope began, and what was within recently.
type past struct {
	now    time.Time // by Redis's clock
	totals map[stats.Task]stats.Counts
	done   map[stats.Task]int64          // within recently
	limits map[string]stats.LimitSummary // what was decided
}

func (q *Queues) past(ctx context.Context) (past, error) {
	totals, err := stats.ReadTotals(ctx, q.rdb, q.scope)
	if err != nil {
		return past{}, err
	}
	now, err := q.rdb.Time(ctx).Result() // the summaries go by Redis's clock
	if err != nil {
		return past{}, err
	}
	summaries, err := stats.ReadSummaries(ctx, q.rdb, q.scope, stats.StreamID(now.Add(-RecentWindow)))
	p := past{now: now, totals: totals}
	p.limits, p.done = CountRecent(summaries, now)
	return p, err
}

func (p past) fill(of *QueueStatus) {
	for t, counts := range p.totals {
		if t.Queue == of.Queue {
			of.Done += int(counts[stats.Done])
			of.Failed += int(counts.FailedJobs())
			of.FailedAttempts += int(counts.FailedAttempts())
		}
	}
	for t, n := range p.done {
		if t.Queue == of.Queue {
			of.Rate += aSecond(n)
		}
	}
}

// limits is how all limits stand, by name.
func (q *Queues) limits(ctx context.Context, forecast *forecast.Forecast, past past) ([]Limit, error) {
	k := Snapshot{Now: past.now, Forecast: forecast, Recent: past.limits}
	survey, err := stats.ReadBacklogSample(ctx, q.rdb, q.scope)
	if err != nil {
		return nil, err
	}
	if survey != nil {
		k.Demand = survey.Limits
	}
	if err := k.Refresh(ctx, q.Limiter); err != nil {
		return nil, err
	}
	all, err := k.ReadLimitStates(ctx, q.Limiter, math.MaxInt)
	slices.SortFunc(all, func(a, b Limit) int { return strings.Compare(a.Name, b.Name) })
	return all, err
}
