// Package plan says when jobs would run that are not added yet, behind all that wait.
package plan

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/headgate/headgate/internal/jobspec"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/scheduler/lanes"
	"github.com/headgate/headgate/throttle"
)

// Plan is jobs that might be added, and what they want together of the limits.
type Plan struct {
	// Basis says what the times stand for where not all limits are in Redis; else it is
	// empty.
	Basis string
	// Jobs is how many there are.
	Jobs int

	limits   limits
	capacity map[string]int // by limit; 0 where there is no such limit
	unbound  int            // jobs that need no limit
	wants    lanes.ForecastOptions
	soonest  time.Time // the earliest moment that a job asks for; zero means now
	latest   time.Time // the latest
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
		capacity, err := p.limits.capacity(ctx, n)
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
	f, err := p.limits.forecast(ctx, p.wants)
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

// Close ends the connection to Redis.
func (p *Plan) Close() { p.limits.close() }
