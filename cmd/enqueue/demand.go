package main

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/headgate/headgate/internal/cli"
	"github.com/headgate/headgate/throttle"
)

// demand is what jobs want together of the limits.
type demand struct {
	planner  *planner
	capacity map[string]int // by limit; 0 where there is no such limit

	jobs    int
	unbound int // jobs that need no limit
	plan    throttle.ForecastOptions
	soonest time.Time // the earliest moment that a job asks for; zero means now
	latest  time.Time // the latest
}

func newDemand(p *planner) *demand {
	return &demand{planner: p, capacity: map[string]int{}}
}

// add counts a job, unless it could never run.
func (d *demand) add(ctx context.Context, l line, needs []throttle.Need) error {
	for _, n := range needs {
		if err := d.fits(ctx, n); err != nil {
			return err
		}
	}
	if d.jobs == 0 || l.At.Before(d.soonest) {
		d.soonest = l.At
	}
	if l.At.After(d.latest) {
		d.latest = l.At
	}
	d.jobs++
	if len(needs) == 0 {
		d.unbound++
		return nil
	}
	return d.plan.Plan(cmp.Or(l.Queue, "default"), 1, needs...)
}

// fits reports a need that the limiter would never meet.
func (d *demand) fits(ctx context.Context, n throttle.Need) error {
	if _, ok := d.capacity[n.Limit]; !ok {
		capacity, err := d.planner.capacity(ctx, n)
		if err != nil {
			return err
		}
		d.capacity[n.Limit] = capacity
	}
	switch capacity := d.capacity[n.Limit]; {
	case capacity == 0:
		return fmt.Errorf("limit %s is for other apps than this one, which is what apps: and app: in the config say", n.Limit)
	case n.Cost > capacity:
		return fmt.Errorf("cost %d is above the capacity %d of limit %s: it can never run", n.Cost, capacity, n.Limit)
	}
	return nil
}

// forecast is when the first and the last of the jobs would run.
func (d *demand) forecast(ctx context.Context) (first, last moment, err error) {
	f, err := d.planner.forecast(ctx, d.plan)
	if err != nil {
		return first, last, err
	}
	if d.unbound < d.jobs {
		begins, ends := f.Planned()
		first, last = moment{begins}, moment{ends}
	}
	if d.unbound == d.jobs {
		last.Known = true
	}
	if d.unbound > 0 {
		first = moment{throttle.Expected{Known: true}}
	}
	return first.notBefore(d.soonest), last.notBefore(d.latest), nil
}

// moment is when a job would run, and the meter that it waits longest for.
type moment struct{ throttle.Expected }

// notBefore is the moment of a job that asks to wait until at.
func (m moment) notBefore(at time.Time) moment {
	if own := time.Until(at); !at.IsZero() && own > m.In && m.Known {
		return moment{throttle.Expected{In: own, Known: true}}
	}
	return m
}

// view is a moment in JSON.
func (m moment) view() map[string]any {
	view := map[string]any{"in_s": m.In.Seconds(), "at": time.Now().Add(m.In), "about": m.About}
	if !m.Known {
		view["in_s"], view["at"] = nil, nil
	}
	if m.Limit != "" {
		view["limit"], view["key"] = m.Limit, cli.Text(m.Key)
	}
	return view
}

func (m moment) String() string {
	when, about := "at once", ""
	if m.About {
		about = "about "
	}
	if !m.Known {
		when = "unknown"
	} else if m.In > 0 {
		when = fmt.Sprintf("%sin %s, at %s", about, m.In.Round(time.Millisecond), time.Now().Add(m.In).Format(time.DateTime+" -07:00"))
	}
	switch {
	case m.Limit == "":
		return when
	case m.Key == "":
		return when + ", when limit " + m.Limit + " lets it"
	}
	return fmt.Sprintf("%s, when limit %s of %s lets it", when, m.Limit, m.Key)
}
