package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/forecast"
	"github.com/headgate/headgate/internal/stats"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// Status is the state of all queues, limits and workers at one time.
type Status struct {
	At      time.Time       `json:"at"`     // by Redis's clock
	Queues  []QueueStatus   `json:"queues"` // by name
	Limits  []Limit         `json:"-"`      // by name
	Workers []stats.Process `json:"workers"`
	// Waiting is the number of waiting and granted jobs, Pending the number of pending jobs in the
	// forecasts, WithoutRule the number of other pending jobs, whose rule is unknown.
	Waiting       int                        `json:"-"`
	Pending       int                        `json:"-"`
	WithoutRule   int                        `json:"pending_not_counted,omitempty"`
	ETA           forecast.Estimate          `json:"-"` // of the last waiting or pending job
	HasDispatcher bool                       `json:"-"` // each scope with waiting jobs has a dispatcher
	Demand        map[string][]waitdb.Demand `json:"-"` // by limit, the key with the highest demand first
	Forecasts     []*forecast.Forecast       `json:"-"` // of all scopes
	keyETAs       map[throttle.Need]forecast.Estimate
}

// QueueStatus is the state of an asynq queue, or the sum over the shards of a queue. Granted jobs
// count as Waiting, and not as asynq's retry.
type QueueStatus struct {
	Queue          string  `json:"queue"`
	Paused         bool    `json:"paused"`
	Pending        int     `json:"pending"`
	Waiting        int     `json:"waiting"`
	Active         int     `json:"active"`
	Scheduled      int     `json:"scheduled"`
	Retry          int     `json:"retry"`
	Completed      int     `json:"completed"`
	Archived       int     `json:"archived"`
	Done           int     `json:"done"`            // number of attempts that did not fail, since the queue was created
	FailedAttempts int     `json:"failed_attempts"` // since the queue was created
	Rate           float64 `json:"done_a_second"`   // over the last ten seconds
	// Latency is the age of the oldest pending job, Size the number of all jobs.
	Latency time.Duration `json:"-"`
	Size    int           `json:"-"`
}

// Count returns the number of jobs in the given states.
func (q QueueStatus) Count(states ...string) (jobs int) {
	for state, n := range map[string]int{
		Waiting: q.Waiting, "pending": q.Pending, "active": q.Active, "retry": q.Retry,
		"scheduled": q.Scheduled, "archived": q.Archived, "completed": q.Completed,
	} {
		if slices.Contains(states, state) {
			jobs += n
		}
	}
	return jobs
}

// Position returns p with the estimate of the forecast of its lane's scope.
func (s *Status) Position(p waitdb.Position) waitdb.Position {
	for _, f := range s.Forecasts { // only the forecast that has the lane changes p
		p = f.Position(p)
	}
	return p
}

// KeyETA returns when the last job that waits for a key of a limit would run, or nil if no job
// waits.
func (s *Status) KeyETA(limit, key string) *forecast.Estimate {
	if eta, waits := s.keyETAs[throttle.Need{Limit: limit, Key: key}]; waits {
		return &eta
	}
	return nil
}

// since converts an estimate of a forecast, which counts from f.At, to one that counts from s.At.
func (s *Status) since(f *forecast.Forecast, e forecast.Estimate) forecast.Estimate {
	e.StartsIn = max(0, f.At.Add(e.StartsIn).Sub(s.At))
	return e
}

// statusReader joins what it reads of each scope.
type statusReader struct {
	*Queues
	*Status
	byShard bool
	limits  map[string]*limitReader
	demand  map[throttle.Need]*waitdb.Demand
	waiting map[string]int     // jobs by asynq queue
	rates   map[string]float64 // of done jobs, by asynq queue
}

// limitReader is a limit, with its part in each of the scopes that count it.
type limitReader struct {
	Limit
	parts  []throttle.Limit
	scopes []*Queues
}

// Status reads the state of all scopes. The shards of a queue count together, unless byShard is
// set.
func (q *Queues) Status(ctx context.Context, byShard bool) (*Status, error) {
	now, err := q.rdb.Time(ctx).Result() // first, to fail early if Redis is down
	if err != nil {
		return nil, err
	}
	r := &statusReader{
		Queues: q, byShard: byShard, limits: map[string]*limitReader{}, demand: map[throttle.Need]*waitdb.Demand{},
		waiting: map[string]int{}, rates: map[string]float64{},
		Status: &Status{At: now, ETA: forecast.Estimate{Known: true}, HasDispatcher: true, Demand: map[string][]waitdb.Demand{}, keyETAs: map[throttle.Need]forecast.Estimate{}, Workers: []stats.Process{}},
	}
	scopes := q.Scopes()
	if err := inAll(ctx, scopes, r.readScope); err != nil {
		return nil, err
	}
	r.joinDemand()
	if err := inAll(ctx, scopes, r.readMeters); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(r.limits)) {
		l := r.limits[name]
		l.Limit.Limit = q.Sharded.Join(l.parts[0].Name, l.parts)
		l.Name = name
		l.complete(now, q.KeyOf)
		r.Status.Limits = append(r.Status.Limits, l.Limit)
	}
	r.Status.Queues, err = q.readQueues(ctx, "", byShard, r.waiting)
	for i, queue := range r.Status.Queues {
		for name, rate := range r.rates {
			if name == queue.Queue || !byShard && q.Sharded.QueueOf(name) == queue.Queue {
				r.Status.Queues[i].Rate += rate
			}
		}
	}
	return r.Status, err
}

// inAll reads all scopes at the same time, and then joins what was read, in the order of the
// scopes.
func inAll(ctx context.Context, scopes []*Queues, read func(context.Context, *Queues) (join func(), err error)) error {
	joins, err := readAll(ctx, scopes, read)
	if err != nil {
		return err
	}
	for _, join := range joins {
		join()
	}
	return nil
}

func (r *statusReader) readScope(ctx context.Context, in *Queues) (join func(), err error) {
	waiting, _, hasDispatcher, err := in.Limiter.BacklogStats(ctx)
	if err != nil {
		return nil, err
	}
	f, err := in.Forecast(ctx, forecast.Options{})
	if err != nil {
		return nil, err
	}
	meters, demand, err := stats.ReadDemand(ctx, in.Limiter, f, hasDispatcher)
	if err != nil {
		return nil, err
	}
	limits, err := in.Limiter.Limits(ctx)
	if err != nil {
		return nil, err
	}
	blocks := make([][]throttle.Blocked, len(limits))
	for i, l := range limits {
		if blocks[i], err = in.Limiter.Blocks(ctx, l.Name); err != nil {
			return nil, err
		}
	}
	recent, done, err := in.readRecent(ctx, r.At)
	if err != nil {
		return nil, err
	}
	workers, err := stats.ReadProcesses(ctx, in.rdb, in.scope)
	if err != nil {
		return nil, err
	}
	return func() {
		s := r.Status
		s.Waiting += waiting
		s.Pending += f.Pending
		s.WithoutRule += f.WithoutRule
		s.HasDispatcher = s.HasDispatcher && (hasDispatcher || waiting == 0)
		s.Forecasts = append(s.Forecasts, f)
		last, unknown := f.Last()
		if unknown != nil {
			last = unknown.OrLater(last)
		}
		s.ETA = s.since(f, last).OrLater(s.ETA)
		for _, worker := range workers {
			if i := slices.IndexFunc(s.Workers, func(other stats.Process) bool { return other.ID == worker.ID }); i >= 0 {
				s.Workers[i].Running += worker.Running
			} else {
				s.Workers = append(s.Workers, worker)
			}
		}
		for queue, jobs := range f.Waiting() { // the forecast may have read a part of the lanes only
			r.waiting[queue] += jobs * waiting / max(1, f.Jobs)
		}
		for queue, n := range done {
			r.rates[queue] += rate(n)
		}
		for _, m := range meters {
			need := throttle.Need{Limit: in.shown(m.Limit, r.byShard), Key: m.Key}
			if r.demand[need] == nil {
				r.demand[need] = &waitdb.Demand{Limit: need.Limit, Key: need.Key}
			}
			r.demand[need].Permits += m.Permits
		}
		etas, backlogs := f.Limits(), f.Backlogs()
		for _, b := range backlogs {
			need := throttle.Need{Limit: in.shown(b.Limit, r.byShard), Key: b.Key}
			if other, known := s.keyETAs[need]; b.Cost > 0 && known {
				s.keyETAs[need] = s.since(f, b.Last).OrLater(other)
			} else if b.Cost > 0 {
				s.keyETAs[need] = s.since(f, b.Last)
			}
		}
		for i, limit := range limits {
			name := in.shown(limit.Name, r.byShard)
			if r.limits[name] == nil {
				r.limits[name] = &limitReader{Limit: Limit{ETA: forecast.Estimate{Known: true}}} // if no job needs the limit, ETA stays now
			}
			l := r.limits[name]
			l.parts, l.scopes = append(l.parts, limit), append(l.scopes, in)
			d := demand[limit.Name]
			l.Waiting, l.Total = l.Waiting+d.Waiting, l.Total+d.Total
			if l.Since.IsZero() || !d.Since.IsZero() && d.Since.Before(l.Since) {
				l.Since = d.Since
			}
			l.Permits += rate(recent[limit.Name].Permits)
			l.Allowed += rate(recent[limit.Name].Allowed)
			l.Denied += rate(recent[limit.Name].Denied)
			l.Blocks = joinBlocks(l.Blocks, blocks[i])
			if eta, needed := etas[limit.Name]; needed {
				l.ETA = s.since(f, eta).OrLater(l.ETA)
			}
			l.IsBottleneck = l.IsBottleneck || slices.ContainsFunc(backlogs, func(b forecast.Backlog) bool { return b.Limit == limit.Name && b.IsBottleneck })
		}
	}, nil
}

// shown returns the name under which a limit is shown.
func (q *Queues) shown(limit string, byShard bool) string {
	if byShard && q.part.Count > 0 {
		return limit + " in " + q.part.Name()
	}
	return limit
}

func (r *statusReader) joinDemand() {
	all := slices.SortedFunc(maps.Values(r.demand), func(a, b *waitdb.Demand) int {
		return cmp.Or(cmp.Compare(b.Permits, a.Permits), strings.Compare(a.Key, b.Key))
	})
	for _, d := range all {
		r.Status.Demand[d.Limit] = append(r.Status.Demand[d.Limit], *d)
		if l := r.limits[d.Limit]; l != nil {
			if l.KeyCount++; l.KeyCount <= MaxKeys {
				l.TopKeys = append(l.TopKeys, d.Key)
			}
		}
	}
}

// readMeters reads the meters of the empty key and of TopKeys that the scope counts.
func (r *statusReader) readMeters(ctx context.Context, in *Queues) (join func(), err error) {
	var needs []throttle.Need
	for _, l := range r.limits {
		if i := slices.Index(l.scopes, in); i >= 0 {
			for _, need := range MeterNeeds(l.parts[i].Name, l.TopKeys) {
				if slices.Contains(r.Sharded.Places(need.Limit, &need.Key), *in.part) {
					needs = append(needs, need)
				}
			}
		}
	}
	meters, err := ReadMeters(ctx, in.Limiter, needs)
	return func() {
		for _, m := range meters {
			if l := r.limits[in.shown(m.Limit, r.byShard)]; m.Capacity > 0 { // else the limit was deleted
				l.Meters = joinMeters(l.Meters, []waitdb.Meter{m})
			}
		}
	}, err
}

// Summaries returns what the processes of the scope did since the summary with that ID.
func (q *Queues) Summaries(ctx context.Context, since string) ([]stats.Summary, error) {
	return stats.ReadSummaries(ctx, q.rdb, q.scope, since)
}

// readRecent returns the decisions of each limit, and the jobs of each queue that were done, in ten
// whole seconds. It leaves out the last second, whose summaries may not be complete.
func (q *Queues) readRecent(ctx context.Context, now time.Time) (limits map[string]stats.LimitSummary, done map[string]int64, err error) {
	end := now.Truncate(time.Second).Add(-time.Second)
	summaries, err := q.Summaries(ctx, stats.StreamID(end.Add(-rateWindow)))
	limits, done = map[string]stats.LimitSummary{}, map[string]int64{}
	for _, s := range summaries {
		if !s.At.Before(end) {
			break
		}
		for name, l := range s.Limits {
			limits[name] = limits[name].Add(l)
		}
		for queue, q := range s.Queues {
			done[queue] += q.Done
		}
	}
	return limits, done, err
}

// rateWindow is the time over which rates are taken.
const rateWindow = 10 * time.Second

// rate converts a count of readRecent to a rate per second.
func rate(n int64) float64 { return float64(n) / rateWindow.Seconds() }

// readQueues reads all queues, or only the given one, by name. waiting is the number of waiting
// jobs by queue.
func (q *Queues) readQueues(ctx context.Context, queue string, byShard bool, waiting map[string]int) ([]QueueStatus, error) {
	names, err := q.Names(ctx, queue)
	if err != nil {
		return nil, err
	}
	queues := map[string]*QueueStatus{}
	for _, name := range names {
		info, err := q.Inspector.GetQueueInfo(name)
		if errors.Is(err, asynq.ErrQueueNotFound) { // the queue was deleted
			continue
		}
		if err = cmp.Or(err, ctx.Err()); err != nil {
			return nil, fmt.Errorf("queue %s: %w", name, err)
		}
		shown := name
		if !byShard {
			shown = q.Sharded.QueueOf(name)
		}
		if queues[shown] == nil {
			queues[shown] = &QueueStatus{Queue: shown, Paused: true}
		}
		sum := queues[shown]
		sum.Paused = sum.Paused && info.Paused
		sum.Pending += info.Pending
		sum.Waiting += waiting[name]
		sum.Active += info.Active
		sum.Scheduled += info.Scheduled
		sum.Retry += max(0, info.Retry-waiting[name])
		sum.Completed += info.Completed
		sum.Archived += info.Archived
		sum.Done += info.ProcessedTotal - info.FailedTotal
		sum.FailedAttempts += info.FailedTotal
		sum.Size += info.Size
		sum.Latency = max(sum.Latency, info.Latency)
	}
	list := []QueueStatus{}
	for _, name := range slices.Sorted(maps.Keys(queues)) {
		list = append(list, *queues[name])
	}
	return list, nil
}
