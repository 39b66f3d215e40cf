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

// Forecast says when the jobs that wait would run if nothing else came, nothing was changed, and
// workers were free. It plays all limits of all jobs together: the turns that lanes take, what a
// slower limit leaves of a faster one, windows, blocks, and rates that end. [Make] makes one.
type Forecast struct {
	At time.Time // by Redis's clock
	// Jobs wait in the lanes that were read, of Lanes in all; pending and planned jobs do not
	// count.
	Jobs, Lanes int
	// Pending is the number of pending jobs in the forecast, WithoutRule the number of pending jobs
	// whose rule is unknown.
	Pending, WithoutRule int
	// Estimated is whether there was too much to follow each lane and turn.
	Estimated bool

	lanes         map[string]*lane
	order         []*lane
	meters        map[string]*simMeter
	unread        []Estimate // of meters, for lanes that were not read
	pending, plan plan
}

// Options are what a forecast cannot read of the limiter, and jobs that are only planned. The zero
// value is a forecast of what waits.
type Options struct {
	// Duration is how long a queue's jobs run on average, 0 if unknown: so long they keep their
	// permits of concurrency limits. Nil means unknown.
	Duration func(queue string) time.Duration
	// Stopped reports whether a queue takes no jobs: it is unknown when those run. Nil means that
	// all do.
	Stopped func(queue string) bool
	// Limits are limits that Redis may not have yet; then they count as unused.
	Limits []throttle.Limit
	// Busiest are the meters that most permits are wanted of, in case that there are too many lanes
	// to read each. Nil means that all meters are read to find them.
	Busiest []throttle.Need
	// Lane is one that is read however many there are.
	Lane string
	// WithoutRule is the number of pending jobs whose rule is unknown.
	WithoutRule int
	// Estimated reports whether the pending jobs come from a sample.
	Estimated bool

	pending, plan plan
}

// Estimate is when a job would run.
type Estimate struct {
	// Need is the meter that it waits longest for; zero if it runs at once. Its cost means nothing.
	throttle.Need
	// StartsIn is how long until then. It means nothing unless Known or AtLeast: a limit is paused,
	// or its queue takes no jobs.
	StartsIn time.Duration
	Known    bool
	// AtLeast is whether StartsIn is a lower bound, of a job that is not Known: jobs of unknown
	// duration must end first.
	AtLeast bool
	// Estimated is whether the job waits for running jobs to end, or there was too much to follow.
	Estimated bool
}

// later reports whether a job would run after another; what is unknown comes last, and of that what
// has no lower bound.
func (e Estimate) later(other Estimate) bool {
	if e.Known != other.Known {
		return other.Known
	}
	if e.AtLeast != other.AtLeast {
		return other.AtLeast
	}
	return e.StartsIn > other.StartsIn
}

// OrLater returns when the later of two jobs would run. If that is unknown, it is not before the
// other job, which may be the best lower bound there is.
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
	lanes  []*lane
	byName map[string]*lane
}

// Pending adds so many pending jobs of like's queue and fairness key, which have not asked for
// permits yet and all have these needs. They stand behind all that wait, and before planned jobs.
func (o *Options) Pending(like waitdb.Job, jobs int, needs ...throttle.Need) error {
	return o.pending.add(like, jobs, needs)
}

// Plan adds so many jobs of like's queue and fairness key that would be enqueued now, behind all
// others. A job without needs waits for nothing, and cannot be planned.
func (o *Options) Plan(like waitdb.Job, jobs int, needs ...throttle.Need) error {
	return o.plan.add(like, jobs, needs)
}

// laneOf returns the name of the lane of a job, and what the job costs of each of its meters.
func laneOf(like waitdb.Job, needs []throttle.Need) (name string, costs []float64, err error) {
	if needs, err = throttle.Normalize(needs...); err == nil {
		err = like.ValidateFair()
	}
	if err != nil {
		return "", nil, err
	}
	meters := make([]string, len(needs))
	costs = make([]float64, len(needs))
	for i, n := range needs {
		meters[i], costs[i] = meterOf(n), float64(n.Cost)
	}
	return fairqueue.Lane(like.Queue, meters, fairqueue.FairnessLine(like.Fair, like.Weight)), costs, nil
}

func (p *plan) add(like waitdb.Job, jobs int, needs []throttle.Need) error {
	name, costs, err := laneOf(like, needs)
	if err != nil {
		return err
	}
	if p.byName == nil {
		p.byName = map[string]*lane{}
	}
	l := p.byName[name]
	if l == nil {
		l = &lane{name: name}
		p.lanes, p.byName[name] = append(p.lanes, l), l
	}
	l.add(int64(jobs), costs)
	return nil
}

// Forecast makes a forecast without Redis: nothing waits, and the Limits are unused.
func (o Options) Forecast(now time.Time) *Forecast {
	return newSnapshot(now.UnixMicro(), o).simulate(maxSteps)
}

// estimate returns when the n-th job of a lane would run, from 0.
func (f *Forecast) estimate(l *lane, n int64) Estimate {
	at, longest := l.startOf(n), l.longest()
	e := Estimate{Known: at < far, Estimated: f.Estimated || l.estimated && at > f.At.UnixMicro()}
	if e.Known {
		e.StartsIn, e.AtLeast = microseconds(max(0, at-f.At.UnixMicro())), l.isLowerBound(n)
		e.Known = !e.AtLeast
	} else {
		for i, m := range l.meters {
			if m.IsPaused() {
				longest = i
			}
		}
	}
	if e.AtLeast && l.waits[longest] == 0 { // no other limit makes it wait
		longest = slices.IndexFunc(l.meters, func(m *simMeter) bool { return m.UnknownDuration })
	}
	if e.StartsIn > 0 || !e.Known {
		e.Need = l.meters[longest].Need
	}
	return e
}

// last returns when the last job of a lane would run that waits or is pending.
func (f *Forecast) last(l *lane) Estimate { return f.estimate(l, max(0, l.known-1)) }

// Last returns when the last job that waits or is pending would run, among those for which that is
// known, and a meter for whose jobs it is unknown, or nil.
func (f *Forecast) Last() (last Estimate, unknown *Estimate) {
	last.Known = true
	for _, e := range f.unread {
		if e.Known && e.later(last) {
			last = e
		}
	}
	for _, l := range f.order {
		if l.known == 0 {
			continue
		}
		switch e := f.last(l); {
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

// Job returns when the waiting job of a rank in the lane of that name would run; ranks count from
// 1. It reports false if the forecast does not know the lane.
func (f *Forecast) Job(lane string, rank int) (Estimate, bool) {
	l := f.lanes[lane]
	if l == nil || l.waiting == 0 {
		return Estimate{}, false
	}
	return f.estimate(l, min(int64(max(1, rank)), l.waiting)-1), true
}

// Position returns a position with the forecast's estimate; the forecast may be some seconds older.
// A job that is granted runs now; one whose lane the forecast does not know keeps what it had.
func (f *Forecast) Position(p waitdb.Position) waitdb.Position {
	l := f.lanes[p.Lane.Name]
	if p.Granted || l == nil || l.waiting == 0 {
		return p
	}
	now := p.Since.Add(p.WaitedFor)
	gone, _ := slices.BinarySearch(l.times, now.UnixMicro()+1)
	if now.Sub(f.At) < time.Second { // some of these may have come already
		gone = 0
	}
	e := f.estimate(l, min(int64(gone+max(1, p.Rank)), l.waiting)-1)
	p.StartsAt, p.Known, p.Estimated, p.AtLeast = f.At.Add(e.StartsIn), e.Known, e.Estimated, e.AtLeast
	p.StartsIn = max(0, p.StartsAt.Sub(now))
	if e.Limit != "" {
		p.Bottleneck = meterOf(e.Need)
	}
	return p
}

// IsBottleneck reports whether any job waits longest for that meter.
func (f *Forecast) IsBottleneck(limit, key string) bool {
	m := f.meters[limit+"|"+key]
	return m != nil && m.isBottleneck
}

// Bottlenecks lists the meters that any job waits longest for.
func (f *Forecast) Bottlenecks() (needs []throttle.Need) {
	for _, m := range f.meters {
		if m.isBottleneck {
			needs = append(needs, m.Need)
		}
	}
	return needs
}

// Since returns since when the job waits that waits longest for each limit, of the first jobs of
// the lanes that were read.
func (f *Forecast) Since() map[string]time.Time {
	oldest := map[string]time.Time{}
	for _, l := range f.order {
		if l.since == 0 || l.waiting == 0 {
			continue
		}
		at, isBottleneck := time.UnixMicro(l.since), slices.ContainsFunc(l.meters, func(m *simMeter) bool { return m.isBottleneck })
		for _, m := range l.meters {
			if was := oldest[m.Limit]; m.isBottleneck == isBottleneck && (was.IsZero() || at.Before(was)) {
				oldest[m.Limit] = at
			}
		}
	}
	return oldest
}

// Waiting returns how many of Jobs wait, by queue.
func (f *Forecast) Waiting() map[string]int {
	jobs := map[string]int{}
	for _, l := range f.order {
		jobs[fairqueue.Queue(l.name)] += int(l.waiting)
	}
	return jobs
}

// Limits returns when the last of all waiting or pending jobs would run that need each limit,
// whatever else they wait for. It has no limits that no waiting job needs.
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
	for _, l := range f.order {
		if l.known == 0 {
			continue
		}
		last := f.last(l)
		for _, m := range l.meters {
			note(m.Limit, last)
		}
	}
	return limits
}

// Backlogs yields, by key, the permits of a limit that waiting and granted jobs want, and when the
// last of these jobs would run.
func (f *Forecast) Backlogs(limit string) iter.Seq2[throttle.Need, Estimate] {
	lasts := map[string]Estimate{}
	for _, l := range f.order {
		for _, m := range l.meters {
			if m.Limit != limit || l.known == 0 {
				continue
			}
			e := f.last(l)
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
			last.Known = last.Known || !waits // granted, and on its way
			if !yield(throttle.Need{Limit: limit, Key: m.Key, Cost: int(min(wanted, math.MaxInt))}, last) {
				return
			}
		}
	}
}

// Planned returns when the first and the last job of the plan would run.
func (f *Forecast) Planned() (first, last Estimate) {
	for i, p := range f.plan.lanes {
		l := f.lanes[p.name]
		begins, ends := f.estimate(l, l.known), f.estimate(l, l.jobs-1)
		if i == 0 || first.later(begins) {
			first = begins
		}
		if i > 0 {
			ends = ends.OrLater(last)
		}
		last = ends
	}
	return first, last
}

// snapshot is what a forecast starts from.
type snapshot struct {
	Forecast
	opts    Options
	now     int64
	defined map[string]throttle.Limit   // by the options
	weights map[string]fairqueue.Weight // of queues
}

func newSnapshot(now int64, opts Options) *snapshot {
	s := &snapshot{opts: opts, now: now, defined: map[string]throttle.Limit{}}
	s.At, s.pending, s.plan, s.WithoutRule = time.UnixMicro(now), opts.pending, opts.plan, opts.WithoutRule
	s.lanes, s.meters = map[string]*lane{}, map[string]*simMeter{}
	for _, l := range opts.Limits {
		s.defined[l.Name] = l
	}
	return s
}

// unusedMeter returns a meter that Redis does not have.
func (s *snapshot) unusedMeter(n throttle.Need) *simMeter {
	if l, ok := s.defined[n.Limit]; ok {
		return newMeter(l, n.Key, s.now, s.meanDuration(n))
	}
	return &simMeter{Need: n}
}

// meanDuration returns how long jobs run that wait for a meter, on average over their queues.
func (s *snapshot) meanDuration(n throttle.Need) time.Duration {
	if s.opts.Duration == nil {
		return 0
	}
	sum, jobs := 0.0, 0.0
	for _, l := range slices.Concat(s.order, s.pending.lanes, s.plan.lanes) {
		if l.jobs > 0 && slices.Contains(fairqueue.Meters(l.name), meterOf(n)) {
			if d := s.opts.Duration(fairqueue.Queue(l.name)); d > 0 {
				sum, jobs = sum+float64(d)*float64(l.jobs), jobs+float64(l.jobs)
			}
		}
	}
	if jobs == 0 {
		return 0
	}
	return time.Duration(sum / jobs)
}

// meterOf returns a need's meter, limit|key, as names of lanes have it.
func meterOf(n throttle.Need) string { return n.Limit + "|" + n.Key }

func needOf(meter string) throttle.Need {
	limit, key, _ := strings.Cut(meter, "|")
	return throttle.Need{Limit: limit, Key: key}
}

// join has jobs join their lanes, behind those that are there.
func (s *snapshot) join(p plan) {
	for _, p := range p.lanes {
		l := s.lanes[p.name]
		if l == nil {
			l = &lane{name: p.name}
			s.lanes[p.name], s.order = l, append(s.order, l)
		}
		for _, c := range p.costs {
			l.add(c.jobs, c.of)
		}
	}
}

// simulate returns the forecast of what is known by now.
func (s *snapshot) simulate(steps int) *Forecast {
	for _, l := range s.order {
		l.waiting = l.jobs
		s.Jobs += int(l.jobs)
	}
	s.join(s.pending)
	for _, l := range s.order {
		l.known = l.jobs
		s.Pending += int(l.known - l.waiting)
	}
	s.join(s.plan)
	for _, l := range s.order {
		l.queueStopped = s.opts.Stopped != nil && s.opts.Stopped(fairqueue.Queue(l.name))
		for _, name := range fairqueue.Meters(l.name) {
			if s.meters[name] == nil {
				s.meters[name] = s.unusedMeter(needOf(name))
			}
			l.meters = append(l.meters, s.meters[name])
		}
	}
	sim := simulation{now: s.now, lanes: s.order, weights: s.weights, partial: s.Estimated}
	sim.run(steps)
	s.Estimated = s.Estimated || sim.estimated || s.opts.Estimated
	for _, l := range s.order {
		for i, m := range l.meters {
			m.isBottleneck = m.isBottleneck || l.bottlenecks[i] > 0
			m.hasLowerBounds = m.hasLowerBounds || l.jobs > 0 && l.isLowerBound(l.jobs-1)
		}
	}
	for _, l := range s.order {
		l.estimated = l.estimated || slices.ContainsFunc(l.meters, func(m *simMeter) bool { return m.hasLowerBounds })
	}
	f := s.Forecast
	return &f
}

func microseconds(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
