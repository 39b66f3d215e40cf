package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/cli"
	"github.com/headgate/headgate/throttle"
)

// demand is what jobs want together of the limits.
type demand struct {
	planner  *planner
	capacity map[string]int // by limit; 0 where there is no such limit

	jobs    int
	unbound int                        // jobs that need no limit
	first   map[string][]throttle.Need // needs of the first job of each set of meters
	total   map[meter]int              // permits that all jobs want of each meter
	soonest time.Time                  // the earliest moment that a job asks for; zero means now
	latest  time.Time                  // the latest
}

type meter struct{ limit, key string }

func (m meter) String() string {
	if m.key == "" {
		return "limit " + m.limit
	}
	return fmt.Sprintf("limit %s of %s", m.limit, m.key)
}

func newDemand(p *planner) *demand {
	return &demand{planner: p, capacity: map[string]int{}, first: map[string][]throttle.Need{}, total: map[meter]int{}}
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
	var lane strings.Builder
	for _, n := range needs {
		d.total[meter{n.Limit, n.Key}] += n.Cost
		lane.WriteString(n.Limit + "|" + n.Key + "\n")
	}
	if _, ok := d.first[lane.String()]; !ok {
		d.first[lane.String()] = needs
	}
	return nil
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
	var firsts, all []throttle.Need
	for _, needs := range d.first {
		firsts = append(firsts, needs...)
	}
	for m, cost := range d.total {
		all = append(all, throttle.Need{Limit: m.limit, Key: m.key, Cost: cost})
	}
	soon, err := d.ask(ctx, firsts)
	if err != nil {
		return first, last, err
	}
	late, err := d.ask(ctx, all)
	if err != nil {
		return first, last, err
	}
	found := d.unbound > 0
	for _, needs := range d.first {
		if m := latest(needs, soon); !found || m.before(first) {
			first, found = m, true
		}
	}
	return first.notBefore(d.soonest), latest(all, late).notBefore(d.latest), nil
}

// batch bounds how long one call holds Redis up.
const batch = 500

// ask tells when the permits of each need exist, after all that waits by now.
// Needs of one meter are asked for apart: together they would be added up.
func (d *demand) ask(ctx context.Context, needs []throttle.Need) (map[throttle.Need]moment, error) {
	moments := map[throttle.Need]moment{}
	for len(needs) > 0 {
		var now, later []throttle.Need
		taken := map[meter]throttle.Need{}
		for _, n := range needs {
			m := meter{n.Limit, n.Key}
			switch other, ok := taken[m]; {
			case ok && other == n:
			case ok || len(now) == batch:
				later = append(later, n)
			default:
				taken[m] = n
				now = append(now, n)
			}
		}
		answers, err := d.planner.forecast(ctx, now)
		if err != nil {
			return nil, err
		}
		for _, f := range answers {
			moments[f.Need] = moment{f.In, meter{f.Limit, f.Key}, f.Unsure}
		}
		needs = later
	}
	return moments, nil
}

// moment is when a job would run, and the meter that it waits longest for.
type moment struct {
	in time.Duration
	by meter // zero where no limit makes it wait
	// unsure is whether nobody can tell: the limit is paused, or its slots come back
	// when jobs end.
	unsure bool
}

// before reports whether m is sooner than other; what nobody can tell comes last.
func (m moment) before(other moment) bool {
	if m.unsure != other.unsure {
		return other.unsure
	}
	return m.in < other.in
}

// latest is when all of the needs are met.
func latest(needs []throttle.Need, moments map[throttle.Need]moment) moment {
	var last moment
	for _, n := range needs {
		if last.before(moments[n]) {
			last = moments[n]
		}
	}
	return last
}

// notBefore is the moment of a job that asks to wait until at.
func (m moment) notBefore(at time.Time) moment {
	if own := time.Until(at); !at.IsZero() && own > m.in && !m.unsure {
		return moment{in: own}
	}
	return m
}

// view is a moment in JSON.
func (m moment) view() map[string]any {
	view := map[string]any{"in_s": m.in.Seconds(), "at": time.Now().Add(m.in)}
	if m.unsure {
		view["in_s"], view["at"] = nil, nil
	}
	if m.by != (meter{}) {
		view["limit"], view["key"] = m.by.limit, cli.Text(m.by.key)
	}
	return view
}

func (m moment) String() string {
	when := "at once"
	if m.unsure {
		when = "unknown"
	} else if m.in > 0 {
		when = fmt.Sprintf("in %s, at %s", m.in.Round(time.Millisecond), time.Now().Add(m.in).Format(time.DateTime))
	}
	if m.by == (meter{}) {
		return when
	}
	return when + ", when " + m.by.String() + " lets it"
}
