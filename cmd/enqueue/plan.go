package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/cmd/internal/cli"
	"github.com/headgate/headgate/cmd/internal/config"
	"github.com/headgate/headgate/cmd/internal/jobspec"
	"github.com/headgate/headgate/internal/display"
	"github.com/headgate/headgate/internal/duration"
	"github.com/headgate/headgate/internal/forecast"
	"github.com/headgate/headgate/internal/stats"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/throttle"
)

// printForecast prints when the first and the last job would run. It adds no job.
func printForecast(ctx context.Context, source *source) error {
	p, err := newPlan(ctx, source.config)
	if err != nil {
		return err
	}
	defer p.close()
	if p.basis != "" {
		fmt.Fprintln(source.stdio.Err, "enqueue: "+p.basis)
	}
	for l := range source.jobs() {
		rule, err := l.Rule(source.config)
		if err == nil {
			err = p.add(ctx, l.Job, rule)
		}
		if errors.Is(err, throttle.ErrUnavailable) {
			return err
		}
		if err != nil {
			source.bad.add(l, err)
		}
	}
	source.bad.sum()
	p.warn(source.stdio.Err)
	first, last, err := p.estimate(ctx)
	if err != nil {
		return err
	}
	if p.uncounted > 0 {
		fmt.Fprintf(source.stdio.Err, "enqueue: does not count %s of queues that this config does not serve\n", display.Count(p.uncounted, "pending job"))
	}
	if err := printPlan(source.stdio.Out, source.json, p.jobs, moment{first}, moment{last}); err != nil {
		return err
	}
	return source.verdict()
}

func printPlan(out io.Writer, asJSON bool, jobs int, first, last moment) error {
	if asJSON {
		view := map[string]any{"jobs": jobs}
		if jobs > 0 {
			view["first"], view["last"] = first.view(), last.view()
		}
		return cli.JSON(out, view)
	}
	lines := [][2]string{{"jobs", fmt.Sprintf("%d, not added", jobs)}}
	if jobs > 0 {
		lines = append(lines, [2]string{"first", first.String()}, [2]string{"last", last.String()})
	}
	return cli.Fields(out, lines)
}

// moment prints when a job would run, and its slowest limit.
type moment struct{ forecast.Estimate }

func (m moment) view() map[string]any {
	view := map[string]any{"in_s": m.StartsIn.Seconds(), "at": time.Now().Add(m.StartsIn), "about": m.Estimated}
	if !m.Known {
		if m.AtLeast {
			view["not_before"] = view["at"]
		}
		view["in_s"], view["at"] = nil, nil
	}
	if m.Limit != "" {
		view["limit"], view["key"] = m.Limit, cli.Text(m.Key)
	}
	return view
}

func (m moment) String() string {
	when, about, why := "at once", "", ""
	if m.Estimated {
		about = "about "
	}
	at := time.Now().Add(m.StartsIn).Format(time.DateTime + " -07:00")
	switch {
	case m.AtLeast && m.StartsIn > 0:
		when = fmt.Sprintf("not before %s, in %s", at, duration.Text(m.StartsIn))
		why = ": how long jobs run is not known yet"
	case !m.Known:
		when = "unknown"
	case m.StartsIn > 0:
		when = fmt.Sprintf("%sin %s, at %s", about, duration.Text(m.StartsIn), at)
	}
	switch {
	case m.Limit == "":
		return when + why
	case m.Key == "":
		return when + ", when limit " + m.Limit + " allows it" + why
	}
	return fmt.Sprintf("%s, when limit %s of %s allows it%s", when, m.Limit, m.Key, why)
}

// plan is a set of jobs that might be added, with the permits that they need. It forecasts with the
// limits in Redis. Limits that only the config has start empty.
type plan struct {
	// basis is the assumption of the forecast, if not all limits are in Redis.
	basis string
	jobs  int
	// uncounted is the number of pending jobs in queues that the config does not serve.
	uncounted int

	config *config.Config

	rdb    redis.UniversalClient
	end    func() error // nil if no Redis is running
	redis  *waitdb.DB
	fresh  *throttle.Limiter
	inFile map[string]bool // limits that only the config has

	queues   map[string]bool // of the jobs
	capacity map[string]int  // by limit; 0 if the limit is for other apps
	unbound  int             // jobs that need no limit
	wants    forecast.Options
	soonest  time.Time // the earliest start of a job; zero means now
	latest   time.Time // the latest start of a job
}

// newPlan returns an empty plan.
func newPlan(ctx context.Context, conf *config.Config) (*plan, error) {
	p := &plan{config: conf, capacity: map[string]int{}, queues: map[string]bool{}, inFile: map[string]bool{}, fresh: throttle.NewLocal(throttle.Options{App: conf.App})}
	p.wants.Limits = conf.Limits
	for _, l := range conf.Limits {
		p.inFile[l.Name] = true
	}
	err := p.dial(ctx, conf)
	switch {
	case errors.Is(err, config.ErrNoRedis):
		p.basis, err = "no worker is running; the times assume that one starts now", nil
	case err == nil && len(p.inFile) > 0:
		p.basis = "the times assume that a worker defines these limits now: " +
			strings.Join(slices.Sorted(maps.Keys(p.inFile)), ", ")
	}
	if err == nil {
		err = p.fresh.Define(ctx, conf.Limits...)
	}
	if err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (p *plan) dial(ctx context.Context, conf *config.Config) (err error) {
	if p.rdb, p.end, err = conf.Redis.Connect(ctx); err != nil {
		return err
	}
	p.redis = conf.WaitDB(p.rdb)
	there, err := p.redis.Limits(ctx)
	for _, limit := range there {
		delete(p.inFile, limit.Name)
	}
	return err
}

// add adds a job to the plan, unless the job could never run.
func (p *plan) add(ctx context.Context, job jobspec.Job, rule scheduler.Rule) error {
	for _, n := range rule.Needs {
		if err := p.fits(ctx, n); err != nil {
			return err
		}
	}
	if p.jobs == 0 || job.At.Before(p.soonest) {
		p.soonest = job.At
	}
	if job.At.After(p.latest) {
		p.latest = job.At
	}
	p.jobs++
	p.queues[cmp.Or(job.Queue, "default")] = true
	if len(rule.Needs) == 0 {
		p.unbound++
		return nil
	}
	like := waitdb.Job{JobID: throttle.JobID{Queue: cmp.Or(job.Queue, "default")}, Fair: rule.FairnessKey, Weight: rule.FairnessWeight}
	return p.wants.Plan(like, 1, rule.Needs...)
}

// fits returns an error for a need that can never be met.
func (p *plan) fits(ctx context.Context, n throttle.Need) error {
	capacity, ok := p.capacity[n.Limit]
	if !ok {
		limiter := p.fresh
		if p.redis != nil && !p.inFile[n.Limit] {
			limiter = p.redis.Limiter
		}
		look, err := limiter.AllowN(ctx, n.Limit, n.Key, 0)
		if err != nil {
			return err
		}
		capacity = look.Capacity
		p.capacity[n.Limit] = capacity
	}
	switch {
	case capacity == 0:
		return fmt.Errorf("limit %s is for other apps: see apps: and app: in the config", n.Limit)
	case n.Cost > capacity:
		return fmt.Errorf("cost %d is above the capacity %d of limit %s: it can never run", n.Cost, capacity, n.Limit)
	}
	return nil
}

// estimate returns when the first and the last job would run.
func (p *plan) estimate(ctx context.Context) (first, last forecast.Estimate, err error) {
	var f *forecast.Forecast
	if p.redis == nil {
		f = p.wants.Forecast(time.Now())
	} else {
		var pending stats.Pending
		if pending, err = stats.ReadPending(ctx, p.rdb, p.redis, p.config.ServedQueues(), p.config.RequirementsOf); err == nil {
			f, err = stats.Forecast(ctx, p.redis, p.rdb, pending, p.wants)
		}
		if err != nil {
			return first, last, err
		}
		p.uncounted = pending.WithoutRule
	}
	if p.unbound < p.jobs {
		first, last = f.Planned()
	} else {
		last.Known = true
	}
	if p.unbound > 0 {
		first = forecast.Estimate{Known: true}
	}
	return notBefore(first, p.soonest), notBefore(last, p.latest), nil
}

// warn prints why jobs would not run at the estimated times: no worker, or a pause.
func (p *plan) warn(out io.Writer) {
	if p.rdb == nil {
		return
	}
	inspector := asynq.NewInspectorFromRedisClient(p.rdb)
	servers, err := inspector.Servers()
	if err == nil && len(servers) == 0 {
		fmt.Fprintln(out, "enqueue: no worker is running; the times assume that one starts now")
	}
	for _, queue := range slices.Sorted(maps.Keys(p.queues)) {
		serves := func(s *asynq.ServerInfo) bool { return s.Queues[queue] > 0 }
		if len(servers) > 0 && !slices.ContainsFunc(servers, serves) {
			fmt.Fprintf(out, "enqueue: no worker serves queue %s; the times assume that one starts now\n", queue)
		}
		if info, err := inspector.GetQueueInfo(queue); err == nil && info.Paused {
			fmt.Fprintf(out, "enqueue: queue %s is paused; the times assume that it is resumed now\n", queue)
		}
	}
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

func (p *plan) close() {
	if p.end != nil {
		_ = p.end()
	}
}
