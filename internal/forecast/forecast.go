// Package forecast says when waiting jobs would run: it plays package fairqueue and the limits of
// package throttle forward in time.
package forecast

import (
	"iter"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/fairqueue"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// Forecast says when the jobs that wait would run if nothing else came, nobody changed
// anything, and workers were free. It plays all limits of all jobs together: the turns
// that lanes take, what a slower limit leaves of a faster one, windows, blocks, and
// rates that end. [Make] makes one; it changes nothing.
type Forecast struct {
	// At is when it was made, by Redis's clock.
	At time.Time
	// Jobs wait in the lanes that were looked at, of Lanes in all; those that are pending and
	// those of a plan do not count.
	Jobs, Lanes int
	// Pending is how many jobs are counted that have not asked yet, and Uncounted how many
	// are not.
	Pending, Uncounted int
	// About is whether there was too much to look at each lane and turn.
	Estimated bool

	lanes         map[string]*queued
	order         []*queued
	meters        map[string]*course
	unread        []Estimate // meters of lanes that were not looked at
	pending, plan plan
}

// Options are what a forecast cannot read of the limiter, and jobs that are only
// planned. The zero value is a forecast of what waits.
type Options struct {
	// Runs is how long a queue's jobs run in the mean, 0 where nobody knows: so long
	// they keep their permits of concurrency limits. Nil means that nobody knows.
	Duration func(queue string) time.Duration
	// Stops reports whether a queue takes no jobs, as when it is paused: nobody knows
	// when those run. Nil means that all do.
	Stopped func(queue string) bool
	// Limits are limits that Redis may not have yet; there they count as unused.
	Limits []throttle.Limit
	// Busiest are the meters that most permits are wanted of, for where there are too many
	// lanes to look at each. Nil means that all are read to find them.
	Busiest []throttle.Need
	// Lane is one that is looked at however many there are.
	Lane string
	// Uncounted is how many jobs are pending whose needs are not known, to be
	// told. Sampled is whether those of Pending stand for more, so that all is an estimate.
	Uncounted int
	Sampled   bool

	pending, plan plan
}

// Expected is when a job would run.
type Estimate struct {
	// Need is the meter that it waits longest for; zero where it runs at once. Its cost
	// means nothing.
	throttle.Need
	// In is how long until then, and means nothing unless Known or AtLeast: a limit is
	// paused, or its queue takes nothing.
	StartsIn time.Duration
	Known    bool
	// AtLeast is whether In is a lower bound, of one that is not Known: jobs of unknown
	// duration must end first.
	AtLeast bool
	// About is whether that is an estimate: it waits for running jobs to end, or there
	// was too much to follow each turn.
	Estimated bool
}

// later reports whether a job would run after another; what is not known comes last, and of
// that what has no lower bound.
func (e Estimate) later(other Estimate) bool {
	if e.Known != other.Known {
		return other.Known
	}
	if e.AtLeast != other.AtLeast {
		return other.AtLeast
	}
	return e.StartsIn > other.StartsIn
}

// OrLater is when the later of two jobs would run. If that is not known, it is not before the
// time of the other job, which may be the best lower bound there is.
func (e Estimate) OrLater(other Estimate) Estimate {
	if other.later(e) {
		e, other = other, e
	}
	if !e.Known && other.StartsIn > e.StartsIn && (other.Known || other.AtLeast) {
		e.AtLeast, e.StartsIn = true, other.StartsIn
		if e.Limit == "" || other.Limit != "" {
			e.Need = other.Need
		}
	}
	e.Estimated = e.Estimated || other.Estimated
	return e
}

// plan is jobs that are in no lane yet: pending, or not enqueued.
type plan struct {
	lanes  []*queued
	byName map[string]*queued
}

// Pending adds so many jobs as like is, by its queue and its fairness key, that are in their
// queue, have not asked for permits yet, and all have these needs. They stand behind all that
// wait, and before those that are planned.
func (o *Options) Pending(like waitdb.Job, jobs int, needs ...throttle.Need) error {
	return o.pending.add(like, jobs, needs)
}

// Plan adds so many jobs as like is, by its queue and its fairness key, that would be
// enqueued now and all have these needs, behind all that wait and those that were planned
// before. A job without needs waits for nothing, and cannot be planned.
func (o *Options) Plan(like waitdb.Job, jobs int, needs ...throttle.Need) error {
	return o.plan.add(like, jobs, needs)
}

// laneOf is the name of the lane of a job, and what the job costs of each of its meters.
func laneOf(like waitdb.Job, needs []throttle.Need) (name string, of []float64, err error) {
	needs, err = throttle.Normalize(needs...)
	if err == nil {
		err = like.ValidateFair()
	}
	if err != nil {
		return "", nil, err
	}
	meters := make([]string, len(needs))
	of = make([]float64, len(needs))
	for i, n := range needs {
		meters[i], of[i] = meterOf(n), float64(n.Cost)
	}
	return fairqueue.Lane(like.Queue, meters, fairqueue.FairnessLine(like.Fair, like.Weight)), of, nil
}

func (p *plan) add(like waitdb.Job, jobs int, needs []throttle.Need) error {
	name, of, err := laneOf(like, needs)
	if err != nil {
		return err
	}
	if p.byName == nil {
		p.byName = map[string]*queued{}
	}
	q := p.byName[name]
	if q == nil {
		q = &queued{name: name}
		p.lanes, p.byName[name] = append(p.lanes, q), q
	}
	q.add(int64(jobs), of)
	return nil
}

// Forecast makes a forecast without Redis: nothing waits, and the Limits are unused.
func (o Options) Forecast(now time.Time) *Forecast {
	s := newSight(now.UnixMicro(), o)
	return s.forecast(maxSteps)
}

// expected is when the n-th job of a lane would run, from 0.
func (f *Forecast) expected(q *queued, n int64) Estimate {
	at, longest := q.at(n), q.longest()
	e := Estimate{Known: at < far, Estimated: f.Estimated || q.about && at > f.At.UnixMicro()}
	if e.Known {
		e.StartsIn, e.AtLeast = microseconds(max(0, at-f.At.UnixMicro())), q.least(n)
		e.Known = !e.AtLeast
	} else {
		for i, m := range q.meters {
			if m.Unknown() {
				longest = i
			}
		}
	}
	if e.AtLeast && q.waits[longest] == 0 { // no other limit makes it wait
		longest = slices.IndexFunc(q.meters, func(m *course) bool { return m.Least })
	}
	if e.StartsIn > 0 || !e.Known {
		e.Need = q.meters[longest].Need
	}
	return e
}

// last is when the last job of a lane would run that waits or is pending.
func (f *Forecast) last(q *queued) Estimate { return f.expected(q, max(0, q.known-1)) }

// LastPending is when the last of the pending jobs would run that are like this one and have
// these needs. It reports false if the forecast counts none.
func (f *Forecast) LastPending(like waitdb.Job, needs ...throttle.Need) (Estimate, bool) {
	name, _, err := laneOf(like, needs)
	if err != nil || f.pending.byName[name] == nil {
		return Estimate{}, false
	}
	return f.last(f.lanes[name]), true
}

// Last is when the last job that waits or is pending would run, among those for which that is known, and
// a meter whose jobs nobody knows of: nil where there is none.
func (f *Forecast) Last() (last Estimate, unknown *Estimate) {
	last.Known = true
	for _, e := range f.unread {
		if e.Known && e.later(last) {
			last = e
		}
	}
	for _, q := range f.order {
		if q.known == 0 {
			continue
		}
		switch e := f.last(q); {
		case !e.Known:
			if unknown != nil {
				e = e.OrLater(*unknown)
			}
			unknown = &e
		case e.later(last):
			last = e
		}
	}
	return last, unknown
}

// Job is when a waiting job would run that stands at a position in the lane of that name,
// which counts from 1. It reports false where the forecast does not know the lane.
func (f *Forecast) Job(lane string, position int) (Estimate, bool) {
	q := f.lanes[lane]
	if q == nil || q.waiting == 0 {
		return Estimate{}, false
	}
	return f.expected(q, min(int64(max(1, position)), q.waiting)-1), true
}

// Place is where a job stands, with when it would run as the forecast has
// it, which may be some seconds older. A job that is called runs now; one whose lane the
// forecast does not know keeps what it had.
func (f *Forecast) Position(p waitdb.Position) waitdb.Position {
	q := f.lanes[p.Lane.Name]
	if p.Granted || q == nil || q.waiting == 0 {
		return p
	}
	now := p.Since.Add(p.WaitedFor)
	gone, _ := slices.BinarySearch(q.times, now.UnixMicro()+1)
	if now.Sub(f.At) < time.Second { // of these some may have come already
		gone = 0
	}
	e := f.expected(q, min(int64(gone+max(1, p.Rank)), q.waiting)-1)
	p.StartsAt, p.Known, p.Estimated, p.AtLeast = f.At.Add(e.StartsIn), e.Known, e.Estimated, e.AtLeast
	p.StartsIn = max(0, p.StartsAt.Sub(now))
	if e.Limit != "" {
		p.Bottleneck = meterOf(e.Need)
	}
	return p
}

// Binds reports whether any job waits longest for that meter.
func (f *Forecast) IsBottleneck(limit, key string) bool {
	m := f.meters[limit+"|"+key]
	return m != nil && m.binds
}

// Binding lists the meters that any job waits longest for.
func (f *Forecast) Bottlenecks() (needs []throttle.Need) {
	for _, m := range f.meters {
		if m.binds {
			needs = append(needs, m.Need)
		}
	}
	return needs
}

// Since is since when the job waits that waits longest for each limit, of the first jobs of the
// lanes that were looked at.
func (f *Forecast) Since() map[string]time.Time {
	oldest := map[string]time.Time{}
	for _, q := range f.order {
		if q.since == 0 || q.waiting == 0 {
			continue
		}
		at, binds := time.UnixMicro(q.since), slices.ContainsFunc(q.meters, func(m *course) bool { return m.binds })
		for _, m := range q.meters {
			if was := oldest[m.Limit]; m.binds == binds && (was.IsZero() || at.Before(was)) {
				oldest[m.Limit] = at
			}
		}
	}
	return oldest
}

// Waiting is how many of Jobs wait, by queue.
func (f *Forecast) Waiting() map[string]int {
	jobs := map[string]int{}
	for _, q := range f.order {
		queue, _, _ := strings.Cut(q.name, "\n")
		jobs[queue] += int(q.waiting)
	}
	return jobs
}

// Limits is when the last of all jobs would run that wait, or are pending, and need each
// limit, whatever else they wait for. Limits that no waiting job needs are not in it.
func (f *Forecast) Limits() map[string]Estimate {
	limits := map[string]Estimate{}
	note := func(limit string, e Estimate) {
		if last, seen := limits[limit]; seen {
			e = e.OrLater(last)
		}
		limits[limit] = e
	}
	for _, e := range f.unread {
		note(e.Limit, e)
	}
	for _, q := range f.order {
		if q.known == 0 {
			continue
		}
		last := f.last(q)
		for _, m := range q.meters {
			note(m.Limit, last)
		}
	}
	return limits
}

// Backlogs yields, by key, the permits of a limit that waiting jobs want, those that are
// called among them, and when the last of these jobs would run.
func (f *Forecast) Backlogs(limit string) iter.Seq2[throttle.Need, Estimate] {
	lasts := map[string]Estimate{}
	for _, q := range f.order {
		for _, m := range q.meters {
			if m.Limit != limit || q.known == 0 {
				continue
			}
			e := f.last(q)
			if last, seen := lasts[m.Key]; seen {
				e = e.OrLater(last)
			}
			lasts[m.Key] = e
		}
	}
	return func(yield func(throttle.Need, Estimate) bool) {
		for _, id := range slices.Sorted(maps.Keys(f.meters)) {
			m := f.meters[id]
			wanted := m.Reserved + m.Wanted
			if m.Limit != limit || wanted == 0 {
				continue
			}
			last, waits := lasts[m.Key]
			last.Known = last.Known || !waits // called, and on its way
			if !yield(throttle.Need{Limit: limit, Key: m.Key, Cost: int(min(wanted, math.MaxInt))}, last) {
				return
			}
		}
	}
}

// Planned is when the first and the last job of the plan would run.
func (f *Forecast) Planned() (first, last Estimate) {
	found := false
	for _, p := range f.plan.lanes {
		q := f.lanes[p.name]
		begins, ends := f.expected(q, q.known), f.expected(q, q.jobs-1)
		if !found || first.later(begins) {
			first = begins
		}
		if found {
			ends = ends.OrLater(last)
		}
		last, found = ends, true
	}
	return first, last
}

// sight is a forecast that is being made.
type sight struct {
	Forecast
	opts    Options
	now     int64
	defined map[string]throttle.Limit   // by the options
	weights map[string]fairqueue.Weight // of queues
}

func newSight(now int64, opts Options) *sight {
	s := &sight{opts: opts, now: now, defined: map[string]throttle.Limit{}}
	s.At, s.pending, s.plan, s.Uncounted = time.UnixMicro(now), opts.pending, opts.plan, opts.Uncounted
	s.lanes, s.meters = map[string]*queued{}, map[string]*course{}
	for _, l := range opts.Limits {
		s.defined[l.Name] = l
	}
	return s
}

// fresh is a meter that Redis does not have.
func (s *sight) fresh(n throttle.Need) *course {
	if l, ok := s.defined[n.Limit]; ok {
		return newCourse(l, n.Key, s.now, s.runs(n))
	}
	return &course{Need: n}
}

// runs is how long jobs run that wait for a meter, in the mean over their queues.
func (s *sight) runs(n throttle.Need) time.Duration {
	if s.opts.Duration == nil {
		return 0
	}
	meter := meterOf(n)
	sum, jobs := 0.0, 0.0
	count := func(lanes []*queued) {
		for _, q := range lanes {
			if q.jobs > 0 && slices.Contains(fairqueue.Meters(q.name), meter) {
				if runs := s.opts.Duration(fairqueue.Queue(q.name)); runs > 0 {
					sum, jobs = sum+float64(runs)*float64(q.jobs), jobs+float64(q.jobs)
				}
			}
		}
	}
	count(s.order)
	count(s.pending.lanes)
	count(s.plan.lanes)
	if jobs == 0 {
		return 0
	}
	return time.Duration(sum / jobs)
}

// meterOf is a need's meter, limit|key, as names of lanes have it.
func meterOf(n throttle.Need) string { return n.Limit + "|" + n.Key }

// needOf is a permit of a meter, limit|key.
func needOf(meter string) throttle.Need {
	limit, key, _ := strings.Cut(meter, "|")
	return throttle.Need{Limit: limit, Key: key}
}

// join has jobs join their lanes, behind those that are there.
func (s *sight) join(p plan) {
	for _, p := range p.lanes {
		q := s.lanes[p.name]
		if q == nil {
			q = &queued{name: p.name}
			s.lanes[p.name], s.order = q, append(s.order, q)
		}
		for _, c := range p.costs {
			q.add(c.jobs, c.of)
		}
	}
}

// forecast plays what is known by now.
func (s *sight) forecast(steps int) *Forecast {
	for _, q := range s.order {
		q.waiting = q.jobs
		s.Jobs += int(q.jobs)
	}
	s.join(s.pending)
	for _, q := range s.order {
		q.known = q.jobs
		s.Pending += int(q.known - q.waiting)
	}
	s.join(s.plan)
	for _, q := range s.order {
		q.stops = s.opts.Stopped != nil && s.opts.Stopped(fairqueue.Queue(q.name))
		for _, name := range fairqueue.Meters(q.name) {
			if s.meters[name] == nil {
				s.meters[name] = s.fresh(needOf(name))
			}
			q.meters = append(q.meters, s.meters[name])
		}
	}
	play := foresight{now: s.now, lanes: s.order, weights: s.weights, some: s.Estimated}
	play.play(steps)
	s.Estimated = s.Estimated || play.estimated || s.opts.Sampled
	for _, q := range s.order {
		for i, m := range q.meters {
			m.binds = m.binds || q.binding[i] > 0
			m.vague = m.vague || q.jobs > 0 && q.least(q.jobs-1)
		}
	}
	for _, q := range s.order {
		q.about = q.about || slices.ContainsFunc(q.meters, func(m *course) bool { return m.vague })
	}
	f := s.Forecast
	return &f
}

func microseconds(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
