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
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// printPlan prints when the first and the last job would run. It adds no job.
func printPlan(ctx context.Context, source *source) error {
	p := &plan{queues: map[string]bool{}}
	for l := range source.jobs() {
		if err := p.add(l); err != nil {
			source.reject(l, err)
		}
	}
	f, err := p.forecast(ctx, source.config, source.stdio.Err)
	if err != nil {
		return err
	}
	view := planView{Planned: p.jobs}
	if p.jobs > 0 {
		first, last := p.estimates(f)
		view.First, view.Last = newMoment(first), newMoment(last)
	}
	return cmp.Or(cli.Print(source.stdio.Out, source.json, view), source.verdict())
}

type planView struct {
	Planned int     `json:"planned"`
	First   *moment `json:"first,omitempty"`
	Last    *moment `json:"last,omitempty"`
}

// moment is the time at which a job would run, and its slowest limit.
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
	if m.Limit == "" {
		return m.In.String()
	}
	return fmt.Sprintf("%s, when limit %s allows it", m.In, display.Meter(m.Limit+"|"+m.Key))
}

// plan is a set of jobs that might be added.
type plan struct {
	jobs    int
	unbound int             // jobs that need no limit
	queues  map[string]bool // of the jobs
	options forecast.Options
	soonest time.Time // the earliest start of a job; zero means now
	latest  time.Time // the latest start of a job
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
	if len(l.rule.Needs) == 0 {
		p.unbound++
		return nil
	}
	like := waitdb.Job{JobID: throttle.JobID{Queue: l.Queue}, Fair: l.rule.FairnessKey, Weight: l.rule.FairnessWeight}
	return p.options.Plan(like, 1, l.rule.Needs...)
}

// forecast forecasts with the limits and the waiting jobs in Redis, and with the limits that only the
// config has. Its notes say why jobs might run later: there is no worker, or a queue is paused.
func (p *plan) forecast(ctx context.Context, conf *config.Config, notes io.Writer) (*forecast.Forecast, error) {
	note := func(format string, args ...any) { fmt.Fprintf(notes, "enqueue: "+format+"\n", args...) }
	rdb, end, err := conf.Redis.Connect(ctx)
	if errors.Is(err, config.ErrNoRedis) {
		note("no worker is running; the times assume that one starts now")
		p.options.Limits = conf.Limits
		return p.options.Forecast(time.Now()), nil
	}
	if err != nil {
		return nil, err
	}
	defer end()
	q := inspect.New(rdb, conf.WaitDB(rdb), conf.Scope)
	q.Rules = inspect.Rules{RuleFor: conf.RequirementsOf, ServedQueues: conf.ServedQueues(), Limits: conf.Limits}
	f, err := q.Forecast(ctx, p.options)
	if err != nil {
		return nil, err
	}
	if f.WithoutRule > 0 {
		note("does not count %s of queues that this config does not serve", display.Count(f.WithoutRule, "pending job"))
	}
	servers, err := q.Inspector.Servers()
	if err == nil && len(servers) == 0 {
		note("no worker is running; the times assume that one starts now")
	}
	for _, queue := range slices.Sorted(maps.Keys(p.queues)) {
		serves := func(s *asynq.ServerInfo) bool { return s.Queues[queue] > 0 }
		if len(servers) > 0 && !slices.ContainsFunc(servers, serves) {
			note("no worker serves queue %s; the times assume that one starts now", queue)
		}
		if info, err := q.Inspector.GetQueueInfo(queue); err == nil && info.Paused {
			note("queue %s is paused; the times assume that it is resumed now", queue)
		}
	}
	return f, nil
}

// estimates returns when the first and the last job would run.
func (p *plan) estimates(f *forecast.Forecast) (first, last forecast.Estimate) {
	if p.unbound < p.jobs {
		first, last = f.Planned()
	} else {
		last.Known = true
	}
	if p.unbound > 0 {
		first = forecast.Estimate{Known: true}
	}
	return notBefore(first, p.soonest), notBefore(last, p.latest)
}

// notBefore delays an estimate until at.
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
