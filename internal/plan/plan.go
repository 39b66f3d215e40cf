// Package plan says when jobs would run that are not added yet, behind all that wait.
package plan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/dial"
	"github.com/headgate/headgate/internal/history"
	"github.com/headgate/headgate/internal/jobspec"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/scheduler/lanes"
	"github.com/headgate/headgate/throttle"
)

// Plan is jobs that might be added, and what they want together of the limits. It asks Redis
// for these, and of those of the config that are not in it yet a limiter that starts empty, as
// theirs will when a worker brings them.
type Plan struct {
	// Basis says what the times stand for where not all limits are in Redis; else it is
	// empty.
	Basis string
	// Jobs is how many there are.
	Jobs int

	rdb    redis.UniversalClient // nil where no Redis is running
	redis  *lanes.Lanes
	fresh  *throttle.Local
	config []throttle.Limit
	inFile map[string]bool // limits that only the config has

	capacity map[string]int // by limit; 0 where there is no such limit
	unbound  int            // jobs that need no limit
	wants    lanes.ForecastOptions
	soonest  time.Time // the earliest moment that a job asks for; zero means now
	latest   time.Time // the latest
}

// New begins a plan under the limits of a config, and of its Redis if there is one.
func New(ctx context.Context, conf *config.Config) (*Plan, error) {
	p := &Plan{capacity: map[string]int{}, inFile: map[string]bool{}, config: conf.Limits, fresh: &throttle.Local{App: conf.App}}
	for _, l := range conf.Limits {
		p.inFile[l.Name] = true
	}
	err := p.dial(ctx, conf)
	switch {
	case errors.Is(err, dial.ErrNoRedis):
		p.Basis, err = "no worker is running: the times are those of one that starts now", nil
	case err == nil && len(p.inFile) > 0:
		p.Basis = "not in Redis yet, so the times are those of a worker that brings it now: limit " +
			strings.Join(slices.Sorted(maps.Keys(p.inFile)), ", ")
	}
	if err == nil {
		err = p.fresh.Define(ctx, conf.Limits...)
	}
	if err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

func (p *Plan) dial(ctx context.Context, conf *config.Config) (err error) {
	if p.rdb, err = dial.Config(ctx, conf); err != nil {
		return err
	}
	p.redis = dial.Limiter(p.rdb, conf)
	there, err := p.redis.Limits(ctx)
	for _, limit := range there {
		delete(p.inFile, limit.Name)
	}
	return err
}

// Add counts a filled job, unless it could never run.
func (p *Plan) Add(ctx context.Context, job jobspec.Job, rule scheduler.Rule) error {
	for _, n := range rule.Needs {
		if err := p.fits(ctx, n); err != nil {
			return err
		}
	}
	if p.Jobs == 0 || job.At.Before(p.soonest) {
		p.soonest = job.At
	}
	if job.At.After(p.latest) {
		p.latest = job.At
	}
	p.Jobs++
	if len(rule.Needs) == 0 {
		p.unbound++
		return nil
	}
	like := lanes.Job{JobID: throttle.JobID{Queue: cmp.Or(job.Queue, "default")}, Fair: rule.Fair, Weight: rule.Weight}
	return p.wants.Plan(like, 1, rule.Needs...)
}

// fits reports a need that the limiter would never meet.
func (p *Plan) fits(ctx context.Context, n throttle.Need) error {
	if _, ok := p.capacity[n.Limit]; !ok {
		capacity, err := p.capacityOf(ctx, n)
		if err != nil {
			return err
		}
		p.capacity[n.Limit] = capacity
	}
	switch capacity := p.capacity[n.Limit]; {
	case capacity == 0:
		return fmt.Errorf("limit %s is for other apps than this one, which is what apps: and app: in the config say", n.Limit)
	case n.Cost > capacity:
		return fmt.Errorf("cost %d is above the capacity %d of limit %s: it can never run", n.Cost, capacity, n.Limit)
	}
	return nil
}

// When is when the first and the last of the jobs would run.
func (p *Plan) When(ctx context.Context) (first, last lanes.Expected, err error) {
	f, err := p.forecast(ctx)
	if err != nil {
		return first, last, err
	}
	if p.unbound < p.Jobs {
		first, last = f.Planned()
	} else {
		last.Known = true
	}
	if p.unbound > 0 {
		first = lanes.Expected{Known: true}
	}
	return notBefore(first, p.soonest), notBefore(last, p.latest), nil
}

// notBefore is when a job runs that asks to wait until at.
func notBefore(e lanes.Expected, at time.Time) lanes.Expected {
	if own := time.Until(at); !at.IsZero() && own > e.In && e.Known {
		return lanes.Expected{In: own, Known: true}
	}
	return e
}

// capacityOf is that of a limit, and 0 if there is no such limit.
func (p *Plan) capacityOf(ctx context.Context, n throttle.Need) (int, error) {
	var limiter throttle.Limiter = p.fresh
	if p.redis != nil && !p.inFile[n.Limit] {
		limiter = p.redis
	}
	look, err := limiter.Peek(ctx, n.Limit, n.Key)
	return look.Capacity, err
}

func (p *Plan) forecast(ctx context.Context) (*lanes.Forecast, error) {
	p.wants.Limits = p.config
	if p.redis == nil {
		return p.wants.Forecast(time.Now()), nil
	}
	return history.Forecast(ctx, p.redis, p.rdb, p.wants)
}

// Close ends the connection to Redis.
func (p *Plan) Close() {
	if p.rdb != nil {
		_ = p.rdb.Close()
	}
}
