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

	"github.com/headgate/headgate/internal/asynqdb"
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
	// Waiting counts waiting and granted jobs. Pending counts the pending jobs in the forecasts.
	// WithoutRule counts the other pending jobs: their rule is unknown.
	Waiting       int                        `json:"-"`
	Pending       int                        `json:"-"`
	WithoutRule   int                        `json:"pending_not_counted,omitempty"`
	Missing       []MissingLimit             `json:"missing_limits"` // by name
	Foreign       []asynqdb.ForeignServer    `json:"foreign_servers"`
	ETA           forecast.Estimate          `json:"-"` // of the last waiting or pending job
	HasDispatcher bool                       `json:"-"` // each scope with waiting jobs has a dispatcher
	Demand        map[string][]waitdb.Demand `json:"-"` // by limit, the key with the highest demand first
	forecasts     []*forecast.Forecast       // of all scopes
	keyETAs       map[throttle.Need]forecast.Estimate
}

// QueueStatus is the state of an asynq queue, or the sum over the shards of a queue. Jobs that were
// denied and put back count as Waiting, and not as asynq's retry. A job that a worker has taken, and
// that has no permits yet, counts as Waiting or Pending, and not as Active.
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
	ArchivedLately int     `json:"archived_last_hour"`
	Done           int     `json:"done"`            // number of attempts that did not fail, since the queue was created
	FailedAttempts int     `json:"failed_attempts"` // since the queue was created
	Rate           float64 `json:"done_a_second"`   // over the last ten seconds
	// Latency is the age of the oldest pending job, Size the number of all jobs.
	Latency time.Duration `json:"-"`
	Size    int           `json:"-"`
}

// ArchiveGrows reports whether more than a few jobs were archived in the last hour.
func (q QueueStatus) ArchiveGrows() bool { return q.ArchivedLately > 10 }

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

// SetEstimate replaces the estimate of a position with that of the forecast. It may be nil.
func (s *Status) SetEstimate(p *waitdb.Position) {
	for i := 0; p != nil && i < len(s.forecasts); i++ {
		*p = s.forecasts[i].Position(*p) // only the forecast that has the lane changes it
	}
}

// KeyETA returns when the last job that waits for a key of a limit would run, or nil if no job
// waits.
func (s *Status) KeyETA(limit, key string) *forecast.Estimate {
	if eta, waits := s.keyETAs[throttle.Need{Limit: limit, Key: key}]; waits {
		return &eta
	}
	return nil
}

// Status reads the state of all scopes. If byShard is false, it adds up the shards of a queue.
func (q *Queues) Status(ctx context.Context, byShard bool) (*Status, error) {
	now, err := q.rdb.Time(ctx).Result() // first, to fail early if Redis is down
	if err != nil {
		return nil, err
	}
	scopes := q.Scopes()
	read, err := readAll(ctx, scopes, func(ctx context.Context, in *Queues) (scopeStatus, error) { return in.readScope(ctx, now) })
	if err != nil {
		return nil, err
	}
	s := &Status{
		At: now, ETA: forecast.Estimate{Known: true}, HasDispatcher: true, Workers: []stats.Process{}, Missing: []MissingLimit{},
		Demand: map[string][]waitdb.Demand{}, keyETAs: map[throttle.Need]forecast.Estimate{},
	}
	definitions := make([][]Definition, len(scopes))
	for i, scope := range read {
		definitions[i] = scope.definitions
	}
	limits := map[string]*Limit{}
	for _, d := range q.joinDefinitions(scopes, definitions, byShard) {
		limits[d.Name] = &Limit{Definition: d, ETA: forecast.Estimate{Known: true}} // if no job needs the limit, ETA stays now
	}
	done, permits := map[string]int64{}, map[throttle.Need]int{}
	for i, scope := range read {
		shown := func(limit string) string { return scopes[i].shownName(limit, byShard) }
		s.add(scope, shown)
		for _, d := range scope.definitions {
			limits[shown(d.Name)].add(scope, d.Name, s)
		}
		for _, d := range scope.demand {
			permits[throttle.Need{Limit: shown(d.Limit), Key: d.Key}] += d.Permits
		}
		maps.Copy(done, scope.done)
	}
	s.setDemand(permits)
	if err := q.setMissing(ctx, s, slices.Sorted(maps.Keys(limits))); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		limits[name].complete(s, q.KeyOf)
		s.Limits = append(s.Limits, *limits[name])
	}
	if s.Foreign, err = q.DB.ForeignServers(ctx); err != nil {
		return nil, err
	}
	s.Queues, err = q.readQueues(ctx, "", byShard, done)
	return s, err
}

type scopeStatus struct {
	definitions   []Definition // without Keys
	waiting       int          // number of waiting and granted jobs
	hasDispatcher bool
	forecast      *forecast.Forecast
	backlogs      map[string][]forecast.Backlog // by limit
	demand        []waitdb.Demand               // by meter
	limits        map[string]stats.LimitDemand  // by limit
	meters        []waitdb.Meter
	decided       map[string]stats.LimitSummary // in rateWindow, by limit
	done          map[string]int64              // jobs in rateWindow, by asynq queue
	workers       []stats.Process
}

func (q *Queues) readScope(ctx context.Context, now time.Time) (s scopeStatus, err error) {
	if s.waiting, _, s.hasDispatcher, err = q.Limiter.BacklogStats(ctx); err != nil {
		return s, err
	}
	if s.forecast, err = q.Forecast(ctx, forecast.Options{}); err != nil {
		return s, err
	}
	if s.demand, s.limits, err = stats.ReadDemand(ctx, q.Limiter, s.forecast); err != nil {
		return s, err
	}
	if s.definitions, err = q.readDefinitions(ctx, false); err != nil {
		return s, err
	}
	s.backlogs = map[string][]forecast.Backlog{}
	for _, b := range s.forecast.Backlogs() {
		s.backlogs[b.Limit] = append(s.backlogs[b.Limit], b)
	}
	var needs []throttle.Need
	for _, d := range s.definitions {
		needs = append(needs, MeterNeeds(d.Name, s.limits[d.Name].TopKeys)...)
	}
	if s.meters, err = ReadMeters(ctx, q.Limiter, needs); err != nil {
		return s, err
	}
	if s.decided, s.done, err = q.readRecent(ctx, now); err != nil {
		return s, err
	}
	s.workers, err = stats.ReadProcesses(ctx, q.rdb, q.scope)
	return s, err
}

// add adds what was read in one scope, except the state of its limits and queues. shown returns the
// name under which a limit of the scope is shown.
func (s *Status) add(scope scopeStatus, shown func(limit string) string) {
	f := scope.forecast
	s.Waiting += scope.waiting
	s.Pending += f.Pending
	s.WithoutRule += f.WithoutRule
	s.HasDispatcher = s.HasDispatcher && (scope.hasDispatcher || scope.waiting == 0)
	s.forecasts = append(s.forecasts, f)
	last, unknown := f.Last()
	if unknown != nil {
		last = unknown.OrLater(last)
	}
	s.ETA = s.rebase(f, last).OrLater(s.ETA)
	for _, b := range f.Backlogs() {
		if b.Cost == 0 {
			continue
		}
		need, eta := throttle.Need{Limit: shown(b.Limit), Key: b.Key}, s.rebase(f, b.Last)
		if other, known := s.keyETAs[need]; known {
			eta = eta.OrLater(other)
		}
		s.keyETAs[need] = eta
	}
	s.Workers = addWorkers(s.Workers, scope.workers)
}

// addWorkers adds the processes of one more scope. A process that serves several scopes is in each.
func addWorkers(all, more []stats.Process) []stats.Process {
	for _, worker := range more {
		if i := slices.IndexFunc(all, func(other stats.Process) bool { return other.ID == worker.ID }); i >= 0 {
			all[i].Running += worker.Running
			all[i].Stuck = append(all[i].Stuck, worker.Stuck...)
		} else {
			all = append(all, worker)
		}
	}
	return all
}

// rebase returns the estimate with StartsIn counted from s.At in place of f.At.
func (s *Status) rebase(f *forecast.Forecast, e forecast.Estimate) forecast.Estimate {
	e.StartsIn = max(0, f.At.Add(e.StartsIn).Sub(s.At))
	return e
}

func (s *Status) setDemand(permits map[throttle.Need]int) {
	for need, n := range permits {
		s.Demand[need.Limit] = append(s.Demand[need.Limit], waitdb.Demand{Limit: need.Limit, Key: need.Key, Permits: n})
	}
	for _, demand := range s.Demand {
		slices.SortFunc(demand, func(a, b waitdb.Demand) int {
			return cmp.Or(cmp.Compare(b.Permits, a.Permits), strings.Compare(a.Key, b.Key))
		})
	}
}

// rateWindow is the time over which rates are taken.
const rateWindow = 10 * time.Second

// rate converts a count of readRecent to a rate per second.
func rate(n int64) float64 { return float64(n) / rateWindow.Seconds() }

// readRecent returns the decisions of each limit, and the jobs of each queue that were done, in
// rateWindow. It leaves out the last second, because its summaries may be incomplete.
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

// Summaries returns the summaries of the scope after the one with the ID since.
func (q *Queues) Summaries(ctx context.Context, since string) ([]stats.Summary, error) {
	return stats.ReadSummaries(ctx, q.rdb, q.scope, since)
}

// readQueues reads all queues, or only the given one, sorted by name. done has the jobs done in
// rateWindow, by asynq queue.
func (q *Queues) readQueues(ctx context.Context, queue string, byShard bool, done map[string]int64) ([]QueueStatus, error) {
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
		lately := 0
		if info.Archived > 0 {
			if lately, err = q.DB.CountArchived(ctx, name, info.Timestamp.Add(-time.Hour)); err != nil {
				return nil, err
			}
		}
		shown := name
		if !byShard {
			shown = q.Sharded.QueueOf(name)
		}
		if queues[shown] == nil {
			queues[shown] = &QueueStatus{Queue: shown, Paused: true}
		}
		sum := queues[shown]
		denied, err := q.DB.CountDenied(ctx, name, info.Retry)
		if err != nil {
			return nil, err
		}
		asking, fetched, err := q.countAsking(ctx, name, info.Active)
		if err != nil {
			return nil, err
		}
		sum.Paused = sum.Paused && info.Paused
		sum.Pending += info.Pending + fetched
		sum.Waiting += denied + asking
		sum.Active += max(0, info.Active-asking-fetched)
		sum.Scheduled += info.Scheduled
		sum.Retry += info.Retry - denied
		sum.Completed += info.Completed
		sum.Archived += info.Archived
		sum.ArchivedLately += lately
		sum.Done += info.ProcessedTotal - info.FailedTotal
		sum.FailedAttempts += info.FailedTotal
		sum.Rate += rate(done[name])
		sum.Size += info.Size
		sum.Latency = max(sum.Latency, info.Latency)
	}
	list := []QueueStatus{}
	for _, name := range slices.Sorted(maps.Keys(queues)) {
		list = append(list, *queues[name])
	}
	return list, nil
}
