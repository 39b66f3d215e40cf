package page

import (
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
	reading sync.Mutex // guards state, and is held while Redis is read
	state   state
}

// state is the data that the reader keeps between snapshots. Snapshots have copies of data, so reads
// replace its slices and maps and never change them in place.
type state struct {
	data
	rdb        redis.UniversalClient
	scope      string
	queues     *inspect.Queues
	limitState inspect.Snapshot // input of data.Limits
	history    history
	due        struct{ limits, backlog time.Time } // times of the next reads
}

func newReader(ctx context.Context, s state) *reader {
	s.history.steps = map[int64]map[string]stats.LimitSummary{}
	r := &reader{ctx: ctx, state: s}
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

// read reads a new snapshot, unless another call has done so already. all makes everything due, after
// a change. If Redis cannot be read, the new snapshot has the old data and an error.
func (r *reader) read(all bool) {
	r.reading.Lock()
	defer r.reading.Unlock()
	old := r.last.Load()
	if all {
		r.state.due = state{}.due
	} else if time.Since(old.At) < maxAge {
		return
	}
	ctx, cancel := context.WithTimeout(r.ctx, readTimeout)
	defer cancel()
	s, err := r.state.read(ctx)
	if err != nil {
		s = old.outdated(err)
	}
	r.last.Store(s)
}

// read reads the data that has changed or is due. It reads the time first, to fail early if Redis is
// down.
func (s *state) read(ctx context.Context) (*snapshot, error) {
	start := time.Now()
	now, err := s.rdb.Time(ctx).Result()
	if err != nil {
		return nil, err
	}
	s.Latency = time.Since(start)
	waiting := s.Waiting
	if s.Waiting, _, s.HasDispatcher, err = s.queues.Limiter.BacklogStats(ctx); err != nil {
		return nil, err
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
		return nil, err
	}
	if s.Limits, err = s.limitRows(ctx, now); err != nil {
		return nil, err
	}
	s.Summary = summarize(s.data, now)
	return &snapshot{data: s.data, At: time.Now(), Now: now.Local()}, nil
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
	if s.history.since == "" {
		s.history.since = stats.StreamID(now.Add(-chartSteps * chartStep))
	}
	summaries, err := stats.ReadSummaries(ctx, s.rdb, s.scope, s.history.since)
	if err != nil {
		return err
	}
	s.history.advance(now)
	for _, summary := range summaries {
		// A process may have written this summary in the next step, after now was read.
		if summary.At.After(now) && summary.At.Before(now.Add(chartStep)) {
			s.history.advance(summary.At)
		}
		s.history.since = summary.ID
		if summary.At.After(now.Add(-inspect.RecentWindow)) {
			s.history.recent = append(s.history.recent, summary)
		}
		for name, l := range summary.Limits {
			s.history.add(summary.At, name, l)
		}
	}
	return nil
}

func (s *state) limitRows(ctx context.Context, now time.Time) ([]limitRow, error) {
	s.limitState.Now, s.limitState.Forecast = now, s.forecast
	s.limitState.Recent, _ = inspect.CountRecent(s.history.recent, now)
	limits, err := s.limitState.States(ctx, s.queues.Limiter, maxMeters)
	rows := make([]limitRow, len(limits))
	for i, l := range limits {
		rows[i] = limitRow{Limit: l, now: now.Local()}
		rows[i].Steps, rows[i].From = s.history.row(l.Name)
		for _, step := range rows[i].Steps {
			rows[i].Sum = rows[i].Sum.Add(step)
		}
	}
	return rows, err
}

// history has the decisions of the last 15 minutes by step and limit.
type history struct {
	since  string // ID of the last summary
	last   int64  // number of the newest step, since 1970
	steps  map[int64]map[string]stats.LimitSummary
	recent []stats.Summary // of the last seconds, for rates
}

// advance begins the step that contains now, and drops old steps.
func (h *history) advance(now time.Time) {
	h.last = max(h.last, now.UnixMilli()/chartStep.Milliseconds())
	maps.DeleteFunc(h.steps, func(i int64, _ map[string]stats.LimitSummary) bool { return i <= h.last-chartSteps })
	h.recent = slices.DeleteFunc(h.recent, func(s stats.Summary) bool { return s.At.Before(now.Add(-inspect.RecentWindow)) })
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
