package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/cmd/internal/cli"
	"github.com/headgate/headgate/cmd/internal/config"
	"github.com/headgate/headgate/internal/display"
	"github.com/headgate/headgate/internal/forecast"
	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/internal/shard"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// plan prints when the first and the last job would run. It adds no job.
func (e *enqueuer) plan(ctx context.Context, lines <-chan line) error {
	p := &plan{queues: map[string]bool{}, parts: map[shard.Shard]*forecast.Options{}}
	err := e.each(ctx, lines, func(l line) error {
		if err := p.add(l); err != nil {
			e.bad++
			e.reject(l, err)
		}
		return nil
	}, func() error { return nil })
	if err != nil {
		return err
	}
	first, last, err := p.forecast(ctx, e.config, e.stdio.Err)
	if err != nil {
		return err
	}
	view := planView{Planned: p.jobs}
	if p.jobs > 0 {
		first, last = p.bound(first, last)
		view.First, view.Last = newMoment(first), newMoment(last)
	}
	return cmp.Or(cli.Print(e.stdio.Out, e.json, view), e.verdict())
}

type planView struct {
	Planned int     `json:"planned"`
	First   *moment `json:"first,omitempty"`
	Last    *moment `json:"last,omitempty"`
}

// moment is the time at which a job would run. If NotBefore is true, the job may run later. Limit
// and Key name the meter that delays the job most. Limit is empty if no meter delays it.
type moment struct {
	In        cli.ETA   `json:"in_s"`
	Estimated bool      `json:"estimated,omitempty"`
	NotBefore time.Time `json:"not_before,omitzero"`
	Limit     string    `json:"limit,omitempty"`
	Key       string    `json:"key,omitempty"`
}

func newMoment(e forecast.Estimate) *moment {
	m := &moment{In: cli.ETA(e), Estimated: e.Estimated, Limit: e.Limit, Key: e.Key}
	if e.AtLeast {
		m.NotBefore = time.Now().Add(e.StartsIn)
	}
	return m
}

func (m *moment) String() string {
	limit := display.Meter(m.Limit + "|" + m.Key)
	switch {
	case m.Limit == "":
		return m.In.String()
	case m.In.AtLeast:
		return fmt.Sprintf("%s: limit %s must allow it, and it is not known yet how long jobs run", m.In, limit)
	}
	return fmt.Sprintf("%s, when limit %s allows it", m.In, limit)
}

// plan is a set of jobs that might be added.
type plan struct {
	jobs    int
	unbound int                               // number of jobs that need no limit
	queues  map[string]bool                   // queues of all jobs
	parts   map[shard.Shard]*forecast.Options // the jobs with limits, by shard; the zero Shard is for queues without shards
	soonest time.Time                         // the earliest start of a job; zero means now
	latest  time.Time                         // the latest start of a job
}

func (p *plan) add(l line) error {
	if p.jobs == 0 || l.At.Before(p.soonest) {
		p.soonest = l.At
	}
	if l.At.After(p.latest) {
		p.latest = l.At
	}
	p.jobs++
	p.queues[l.Queue] = true
	if len(l.Rule.Needs) == 0 {
		p.unbound++
		return nil
	}
	queue := l.Queue
	if l.Shard.Count > 0 {
		queue = l.Shard.Name() // the lanes of the waiting jobs have this name
	}
	like := waitdb.Job{JobID: throttle.JobID{Queue: queue}, Fair: l.Rule.FairnessKey, Weight: l.Rule.FairnessWeight}
	if p.parts[l.Shard] == nil {
		p.parts[l.Shard] = &forecast.Options{}
	}
	return p.parts[l.Shard].Plan(like, 1, l.Rule.Needs...)
}

// forecast returns when the first and the last job with limits would run, over all shards. It uses
// the limits and the waiting jobs in Redis, and the limits that only the config has. It writes to
// notes why jobs might run later.
func (p *plan) forecast(ctx context.Context, conf *config.Config, notes io.Writer) (first, last forecast.Estimate, err error) {
	rdb, end, err := conf.Redis.Connect(ctx)
	if err != nil && !errors.Is(err, config.ErrNoRedis) {
		return first, last, err
	}
	var q *inspect.Queues
	if err == nil {
		defer end()
		q = conf.Inspect(rdb)
	}
	found, withoutRule := false, 0
	for part, options := range p.parts {
		var f *forecast.Forecast
		if q == nil {
			options.Limits, _ = conf.Sharded.LimitsIn(part, conf.Limits) // Parse has checked it
			f = options.Forecast(time.Now())
		} else if f, err = q.In(part).Forecast(ctx, *options); err != nil {
			return first, last, err
		}
		withoutRule = max(withoutRule, f.WithoutRule)
		a, b := f.Planned()
		if !found {
			first, last, found = a, b, true
			continue
		}
		if a.Known && (!first.Known || a.StartsIn < first.StartsIn) {
			first = a
		}
		last = b.OrLater(last)
	}
	if withoutRule > 0 {
		fmt.Fprintf(notes, "%s: the plan does not include %s of queues that this config does not serve\n", cli.Enqueue, display.Count(withoutRule, "pending job"))
	}
	p.note(conf, q, notes)
	return first, last, nil
}

// note writes why jobs might run later than planned: no worker serves a queue, or a queue is paused.
// q is nil if there is no Redis.
func (p *plan) note(conf *config.Config, q *inspect.Queues, notes io.Writer) {
	var servers []*asynq.ServerInfo
	var err error
	if q != nil {
		servers, err = q.Inspector.Servers()
	}
	if err == nil && len(servers) == 0 {
		fmt.Fprintln(notes, cli.Enqueue+": no worker is running; the times assume that one starts now")
	}
	for _, queue := range slices.Sorted(maps.Keys(p.queues)) {
		name := conf.Sharded.Names(queue)[0]
		serves := func(s *asynq.ServerInfo) bool { return s.Queues[name] > 0 }
		if len(servers) > 0 && !slices.ContainsFunc(servers, serves) {
			fmt.Fprintf(notes, "%s: no worker serves queue %s; the times assume that one starts now\n", cli.Enqueue, queue)
		}
		if q == nil {
			continue
		}
		if info, err := q.Inspector.GetQueueInfo(name); err == nil && info.Paused {
			fmt.Fprintf(notes, "%s: queue %s is paused; the times assume that it is resumed now\n", cli.Enqueue, queue)
		}
	}
}

// bound corrects the estimates: a job without limits starts at once, and no job starts before its
// own start time.
func (p *plan) bound(first, last forecast.Estimate) (forecast.Estimate, forecast.Estimate) {
	if p.unbound == p.jobs {
		last.Known = true
	}
	if p.unbound > 0 {
		first = forecast.Estimate{Known: true}
	}
	return notBefore(first, p.soonest), notBefore(last, p.latest)
}

// notBefore returns an estimate that is not before at. A zero at changes nothing.
func notBefore(e forecast.Estimate, at time.Time) forecast.Estimate {
	own := time.Until(at)
	switch {
	case at.IsZero() || own <= e.StartsIn && (e.Known || e.AtLeast):
		return e
	case e.Known:
		return forecast.Estimate{StartsIn: own, Known: true}
	}
	e.StartsIn, e.AtLeast = max(0, own), true
	return e
}
