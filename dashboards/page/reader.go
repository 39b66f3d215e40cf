package page

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/singleflight"

	"github.com/headgate/headgate/internal/forecast"
	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/internal/shard"
	"github.com/headgate/headgate/internal/stats"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

const (
	// maxAge is the largest age of a snapshot that a request may get.
	maxAge = 1500 * time.Millisecond
	// Some data is not read for every snapshot, but at these intervals.
	limitsInterval  = 30 * time.Second // or earlier, if the changelog has a new entry
	backlogInterval = 2 * time.Second  // at least, and backlogRest times as long as the read
	backlogRest     = 50
	// readTimeout is the longest time for the reads of a snapshot or a view. It does not bound calls
	// of asynq's Inspector, which takes no context.
	readTimeout = 5 * time.Second
	// maxMeters is the largest number of meters that are read for a snapshot.
	maxMeters = 500
	// Charts show the last 15 minutes in steps of 10 seconds.
	chartStep  = 10 * time.Second
	chartSteps = 90
)

// reader shares snapshots between all viewers. It reads a new snapshot if a request finds the last
// one too old.
type reader struct {
	ctx     context.Context
	last    atomic.Pointer[snapshot] // never nil
	flight  singleflight.Group
	reading sync.Mutex // guards the fields below, and is held while Redis is read
	rdb     redis.UniversalClient
	queues  *inspect.Queues
	scopes  []*state // first the queues without shards, then each shard
	history history  // of all scopes
}

// state is the data of a scope that the reader keeps between snapshots. Snapshots have its slices and
// maps, so reads replace them and never change them in place.
type state struct {
	data
	rdb        redis.UniversalClient
	queues     *inspect.Queues
	limitState inspect.Snapshot // input of limits
	limits     []inspect.Limit
	forecast   *forecast.Forecast // nil if nothing waits or is pending
	history    *history
	since      string                              // ID of the last summary
	recent     []stats.Summary                     // of the last seconds, for rates
	due        struct{ limits, backlog time.Time } // times of the next reads
}

func newReader(ctx context.Context, queues *inspect.Queues, o Options) *reader {
	r := &reader{ctx: ctx, rdb: o.Redis, queues: queues, history: history{steps: map[int64]map[string]stats.LimitSummary{}}}
	for _, in := range queues.Scopes() {
		r.scopes = append(r.scopes, &state{rdb: o.Redis, queues: in, limitState: inspect.Snapshot{KeyOf: o.KeyOf}, history: &r.history})
	}
	r.last.Store(&snapshot{Now: time.Now()})
	return r
}

// latest returns the last snapshot, or a new one if the last is too old. All callers wait for the same
// read. If ctx ends or the page closes first, latest returns the old snapshot with an error.
func (r *reader) latest(ctx context.Context) *snapshot {
	s := r.last.Load()
	if time.Since(s.At) < maxAge {
		return s
	}
	select {
	case <-r.flight.DoChan("", func() (any, error) { r.read(false); return nil, nil }):
		return r.last.Load()
	case <-ctx.Done():
		return s.outdated(ctx.Err())
	case <-r.ctx.Done():
		return s.outdated(r.ctx.Err())
	}
}

// read reads a new snapshot, unless another call has done so already. all is set after a change,
// and makes all data due. If Redis cannot be read, the new snapshot has the old data and an error.
func (r *reader) read(all bool) {
	r.reading.Lock()
	defer r.reading.Unlock()
	old := r.last.Load()
	if all {
		for _, scope := range r.scopes {
			scope.due = state{}.due
		}
	} else if time.Since(old.At) < maxAge {
		return
	}
	ctx, cancel := context.WithTimeout(r.ctx, readTimeout)
	defer cancel()
	s, err := r.readAll(ctx)
	if err != nil {
		s = old.outdated(err)
	}
	r.last.Store(s)
}

// readAll reads the data of all scopes that has changed or is due. It reads the time first, to fail
// early if Redis is down.
func (r *reader) readAll(ctx context.Context) (*snapshot, error) {
	start := time.Now()
	now, err := r.rdb.Time(ctx).Result()
	if err != nil {
		return nil, err
	}
	d := data{Latency: time.Since(start), HasDispatcher: true, demand: map[string][]waitdb.Demand{}}
	var limits []inspect.Limit
	for _, scope := range r.scopes {
		if err := scope.read(ctx, now); err != nil {
			return nil, err
		}
		d.add(scope)
		limits = append(limits, scope.limits...)
	}
	d.Queues.Infos = r.queues.Together(d.Queues.Infos)
	d.Limits = r.limitRows(r.queues.JoinLimits(limits), now)
	slices.SortFunc(d.Queues.Infos, func(a, b inspect.QueueInfo) int { return cmp.Compare(a.Queue, b.Queue) })
	d.Changes = joinChanges(d.Changes, r.queues.Sharded)
	d.Summary = summarize(d, now)
	return &snapshot{data: d, At: time.Now(), Now: now.Local()}, nil
}

// joinChanges returns the changes of all scopes, the newest first. A change of all parts of a limit is
// in it once, without the values, which are those of a part.
func joinChanges(all []throttle.Change, sharded shard.Queues) (changes []throttle.Change) {
	slices.SortStableFunc(all, func(a, b throttle.Change) int { return b.At.Compare(a.At) })
	for _, c := range all {
		home, divided := sharded.Home(c.Limit)
		if divided {
			c.From, c.To = "", ""
		}
		last := changes[max(0, len(changes)-home.Count):]
		if !slices.ContainsFunc(last, func(other throttle.Change) bool {
			return c.What == other.What && c.Limit == other.Limit && c.Key == other.Key && c.By == other.By && other.At.Sub(c.At) < time.Second
		}) {
			changes = append(changes, c)
		}
	}
	return changes
}

// add adds the data of a scope.
func (d *data) add(s *state) {
	d.HasDispatcher = d.HasDispatcher && (s.HasDispatcher || s.Waiting == 0)
	d.Waiting += s.Waiting
	d.Pending += s.Pending
	d.WithoutRule += s.WithoutRule
	d.Queues.Infos = append(d.Queues.Infos, s.Queues.Infos...)
	d.Queues.Running += s.Queues.Running
	d.Queues.Archived += s.Queues.Archived
	d.Queues.Servers = s.Queues.Servers // of any scope
	d.Changes = append(d.Changes, s.Changes...)
	for limit, keys := range s.demand {
		if d.demand[limit] != nil {
			keys = slices.Concat(d.demand[limit], keys)
			slices.SortStableFunc(keys, func(a, b waitdb.Demand) int { return cmp.Compare(b.Permits, a.Permits) })
		}
		d.demand[limit] = keys
	}
	if s.forecast != nil {
		d.forecasts = append(d.forecasts, s.forecast)
	}
}

// read reads the data of the scope that has changed or is due.
func (s *state) read(ctx context.Context, now time.Time) (err error) {
	waiting := s.Waiting
	if s.Waiting, _, s.HasDispatcher, err = s.queues.Limiter.BacklogStats(ctx); err != nil {
		return err
	}
	if waiting == 0 || s.Waiting == 0 {
		s.due.backlog = time.Time{}
	}
	err = errors.Join(
		s.readChanges(ctx),
		readIfDue(ctx, &s.due.limits, limitsInterval, 0, func(ctx context.Context) error { return s.limitState.ReadLimits(ctx, s.queues.Limiter) }),
		readIfDue(ctx, &s.due.backlog, backlogInterval, backlogRest, s.readBacklog),
		s.readHistory(ctx, now),
	)
	if err != nil {
		return err
	}
	s.limitState.Now, s.limitState.Forecast = now, s.forecast
	s.limitState.Recent, _ = inspect.CountRecent(s.recent, now)
	s.limits, err = s.limitState.States(ctx, s.queues.Limiter, maxMeters)
	return err
}

// readIfDue calls read if it is due, and sets the time of the next read: after the interval, or after
// rest times the duration of this read, whichever is later. A failed read stays due.
func readIfDue(ctx context.Context, due *time.Time, interval, rest time.Duration, read func(context.Context) error) error {
	start := time.Now()
	if start.Before(*due) {
		return nil
	}
	if err := read(ctx); err != nil {
		return err
	}
	*due = start.Add(max(interval, rest*time.Since(start)))
	return nil
}

// readChanges reads the changelog if it has a new entry, and makes the limits due.
func (s *state) readChanges(ctx context.Context) error {
	last, err := s.queues.Limiter.Changes(ctx, 1)
	if err != nil || slices.EqualFunc(last, s.Changes[:min(1, len(s.Changes))], func(a, b throttle.Change) bool { return a.ID == b.ID }) {
		return err
	}
	s.due.limits = time.Time{}
	s.Changes, err = s.queues.Limiter.Changes(ctx, 500)
	return err
}

func (s *state) readBacklog(ctx context.Context) error {
	return errors.Join(s.readForecast(ctx), s.readDemand(ctx), s.readQueues(ctx))
}

func (s *state) readDemand(ctx context.Context) error {
	s.demand, s.limitState.Demand = map[string][]waitdb.Demand{}, nil
	if s.Waiting == 0 || s.forecast == nil {
		return nil
	}
	meters, limits, err := stats.ReadDemand(ctx, s.queues.Limiter, s.forecast, s.HasDispatcher)
	if err != nil {
		return err
	}
	s.limitState.Demand = limits
	for _, m := range meters {
		s.demand[m.Limit] = append(s.demand[m.Limit], m)
	}
	return nil
}

func (s *state) readForecast(ctx context.Context) error {
	s.Pending, s.WithoutRule = 0, 0
	if pending, err := s.queues.PendingCount(ctx); err != nil || pending+s.Waiting == 0 {
		s.forecast = nil
		return err
	}
	f, err := s.queues.Forecast(ctx, forecast.Options{})
	if err != nil {
		return err
	}
	if s.forecast = f; s.Waiting == 0 && f.Pending == 0 {
		s.forecast = nil
	}
	s.Pending, s.WithoutRule = f.Pending, f.WithoutRule
	return nil
}

func (s *state) readQueues(ctx context.Context) error {
	infos, err := s.queues.ReadQueues(ctx, "", inspect.WaitingByQueue(s.forecast, s.Waiting))
	if err != nil {
		return err
	}
	servers, err := s.queues.Inspector.Servers()
	if err != nil {
		return err
	}
	q := queues{Infos: infos, Servers: len(servers)}
	for _, info := range infos {
		q.Running += info.Active
		q.Archived += info.Archived
	}
	s.Queues = q
	return nil
}

// readHistory reads the summaries since the last call. The first call reads those of the whole chart.
func (s *state) readHistory(ctx context.Context, now time.Time) error {
	if s.since == "" {
		s.since = stats.StreamID(now.Add(-chartSteps * chartStep))
	}
	summaries, err := stats.ReadSummaries(ctx, s.rdb, s.queues.Scope(), s.since)
	if err != nil {
		return err
	}
	s.history.advance(now)
	s.recent = slices.DeleteFunc(s.recent, func(old stats.Summary) bool { return old.At.Before(now.Add(-inspect.RecentWindow)) })
	for _, summary := range summaries {
		// A process may have written this summary in the next step, after now was read.
		if summary.At.After(now) && summary.At.Before(now.Add(chartStep)) {
			s.history.advance(summary.At)
		}
		s.since = summary.ID
		if summary.At.After(now.Add(-inspect.RecentWindow)) {
			s.recent = append(s.recent, summary)
		}
		for name, l := range summary.Limits {
			s.history.add(summary.At, name, l)
		}
	}
	return nil
}

func (r *reader) limitRows(limits []inspect.Limit, now time.Time) []limitRow {
	rows := make([]limitRow, len(limits))
	for i, l := range limits {
		rows[i] = limitRow{Limit: l, now: now.Local()}
		rows[i].Steps, rows[i].From = r.history.row(l.Name)
		for _, step := range rows[i].Steps {
			rows[i].Sum = rows[i].Sum.Add(step)
		}
	}
	slices.SortStableFunc(rows, func(a, b limitRow) int {
		return cmp.Or(cmp.Compare(b.Waiting, a.Waiting), cmp.Compare(b.Total, a.Total), cmp.Compare(a.Name, b.Name))
	})
	return rows
}

// history has the decisions of the last 15 minutes by step and limit.
type history struct {
	last  int64 // number of the newest step, since 1970
	steps map[int64]map[string]stats.LimitSummary
}

// advance begins the step that contains now, and drops old steps.
func (h *history) advance(now time.Time) {
	h.last = max(h.last, now.UnixMilli()/chartStep.Milliseconds())
	maps.DeleteFunc(h.steps, func(i int64, _ map[string]stats.LimitSummary) bool { return i <= h.last-chartSteps })
}

func (h *history) add(at time.Time, limit string, l stats.LimitSummary) {
	i := at.UnixMilli() / chartStep.Milliseconds()
	if i > h.last || i <= h.last-chartSteps {
		return
	}
	if h.steps[i] == nil {
		h.steps[i] = map[string]stats.LimitSummary{}
	}
	h.steps[i][limit] = h.steps[i][limit].Add(l)
}

// row returns the steps of a limit, the oldest first, and the time at which the first begins.
func (h *history) row(limit string) (row []stats.LimitSummary, from time.Time) {
	first := h.last - chartSteps + 1
	for i := range int64(chartSteps) {
		row = append(row, h.steps[first+i][limit])
	}
	return row, time.UnixMilli(first * chartStep.Milliseconds())
}
