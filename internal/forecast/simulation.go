package forecast

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/fairqueue"
	"github.com/headgate/headgate/throttle"
)

// simulation is a forecast in the making. Package fairqueue gives the turns, as in production.
// Package meter counts the permits. The simulation has its own time, and does not read the clock.
type simulation struct {
	Forecast
	opts        Options
	startedAt   int64                       // start of the simulation
	weights     map[string]fairqueue.Weight // of queues
	batchNumber int                         // number of the present batch of turns
}

// lane is a lane in a simulation.
type lane struct {
	name     string
	lastTurn int64       // Unix microseconds
	since    int64       // start of the wait of its first job, Unix microseconds; 0 if unknown
	meters   []*simMeter // in the order of its name
	stopped  bool        // its queue is paused
	// standsFor is 0 for a lane that was read. Any other lane takes the place of standsFor lanes
	// that were not read.
	standsFor int64
	costs     []costs   // of the jobs that have not started, the next first; see started
	meanCost  []float64 // of all jobs, in the order of the lane's meters
	// jobs counts all jobs. The first `waiting` of them wait, the first `known` of them wait or are
	// pending, and the rest is planned.
	jobs, waiting, known int64

	started    int64   // number of jobs of costs[0] that have started
	times      []int64 // start times of the simulated jobs, Unix microseconds
	waits      []int64 // by meter, the total time for which jobs waited for it, microseconds
	alone      []int64 // by meter, the start of the lane's last job if the lane had no other meter; see estimateAlone
	delayedBy  []int   // for each start in times, the index of the bottleneck so far
	bottleneck int     // index of the meter that delays the lane's last job most
	holder     int     // index of the meter that holds the first job back at the start of the simulation; -1 if none does
	// headSince is the time at which the lane's first job became the first. The meter that was
	// ready last for that job has the index slowest, and was ready at slowestAt.
	headSince, slowestAt int64
	slowest              int
	lastStart            int64 // start of the lane's last job; far if unknown
	estimated            bool  // some start times are estimates
	// next lists what the first job needs of each meter. held is Turn.Held of the last turn. At
	// Need.Ready the meter has free permits for Need.Cost and held.
	next []fairqueue.Need
	held []int64
}

// costs are the mean costs of consecutive jobs at each meter.
type costs struct {
	jobs int64
	of   []float64 // in the order of the lane's meters
}

// add adds jobs at the end of the lane.
func (l *lane) add(c costs) {
	if l.jobs += c.jobs; c.jobs > 0 {
		l.costs = append(l.costs, c)
	}
}

// cost returns the cost of the first job at a meter, in whole permits. It rounds up or down, so
// that the mean over all jobs stays right.
func (l *lane) cost(meter int) int64 {
	mean, n := l.costs[0].of[meter], float64(l.started)
	return int64(math.Floor((n+1)*mean+1e-9) - math.Floor(n*mean+1e-9))
}

// isPossible reports whether the meters can ever give the permits of the first job. An impossible
// job takes no permits in its turn, as in Redis.
func (l *lane) isPossible() bool {
	for i, m := range l.meters {
		if m.capacity > 0 && m.capacity < l.cost(i) {
			return false
		}
	}
	return true
}

func newSimulation(now int64, opts Options) *simulation {
	f := Forecast{At: time.UnixMicro(now), WithoutRule: opts.WithoutRule, lanes: map[string]*lane{}, meters: map[string]*simMeter{}}
	return &simulation{Forecast: f, opts: opts, startedAt: now}
}

// lane returns the lane with a name. If there is none, lane adds one behind the others.
func (s *simulation) lane(name string) *lane {
	l := s.lanes[name]
	if l == nil {
		l = &lane{name: name, stopped: s.opts.Stopped != nil && s.opts.Stopped(fairqueue.Queue(name))}
		s.lanes[name], s.order = l, append(s.order, l)
	}
	return l
}

// joinAll adds pending and planned jobs behind the waiting jobs.
func (s *simulation) joinAll() {
	for _, l := range s.order {
		l.waiting, l.known = l.jobs, l.jobs
		s.Jobs += int(l.jobs)
	}
	for _, g := range s.opts.pending {
		l := s.lane(g.lane)
		l.add(g.costs)
		l.known = l.jobs
		s.Pending += int(g.jobs)
	}
	for _, g := range s.opts.planned {
		s.lane(g.lane).add(g.costs)
	}
}

// meanDuration returns the mean duration of the jobs that need a meter, 0 if it is unknown.
func (s *simulation) meanDuration(n throttle.Need) time.Duration {
	sum, jobs := 0.0, 0.0
	for _, l := range s.order {
		if s.opts.Duration != nil && slices.Contains(fairqueue.Meters(l.name), meterOf(n)) {
			if d := s.opts.Duration(fairqueue.Queue(l.name)); d > 0 {
				sum, jobs = sum+float64(d)*float64(l.jobs), jobs+float64(l.jobs)
			}
		}
	}
	return time.Duration(sum / max(1, jobs))
}

// simulate gives at most steps turns, estimates the times of the remaining jobs, and returns the
// forecast.
func (s *simulation) simulate(steps int) *Forecast {
	if s.Estimated { // not all lanes were read
		steps = 0
	}
	core := fairqueue.NewExact()
	core.SetWeights(s.weights)
	for i, l := range s.order {
		for k, name := range fairqueue.Meters(l.name) {
			if s.meters[name] == nil {
				s.meters[name] = s.unusedMeter(needOf(name))
			}
			jobs, permits := l.remaining(k)
			l.meanCost = append(l.meanCost, float64(permits)/float64(max(1, jobs)))
			l.meters = append(l.meters, s.meters[name])
			s.meters[name].lanes++
			if s.opts.CostShare != nil && l.meanCost[k] > 1 && s.meters[name].lease == 0 {
				s.meters[name].costShare = s.opts.CostShare(needOf(name).Limit)
			}
		}
		n := len(l.meters)
		l.waits, l.alone, l.held = make([]int64, n), make([]int64, n), make([]int64, n)
		l.next, l.lastStart = make([]fairqueue.Need, n), far
		l.headSince, l.slowestAt = s.startedAt, s.startedAt
		if l.holder = -1; !l.stopped && l.jobs > 0 {
			l.readNeeds(s.startedAt)
			l.setHolder(s.startedAt)
			core.AddLane(l.name, int64(i)+1)
		}
	}
	s.estimateAlone(s.startedAt)
	now, results := s.startedAt, make([]fairqueue.Result, 0, 64)
	for ; steps > 0; steps-- { // each turn costs a step, and so does a round without turns
		if now = core.Next(now); now >= far {
			break
		}
		s.batchNumber++
		results = results[:0]
		turns := core.Turns(now, min(64, steps))
		for _, t := range turns { // as Redis does: first all outcomes, then the next needs of the lanes
			results = append(results, s.giveTurn(now, s.lanes[t.Lane], t.Held))
		}
		for i, t := range turns {
			if l := s.lanes[t.Lane]; len(l.costs) > 0 {
				results[i].Next = l.readNeeds(now)
			}
		}
		steps -= max(0, len(results)-1)
		core.ApplyResults(now, results)
		core.ToPromote(now, math.MaxInt) // discards the jobs to promote, which the simulation does not need
	}
	if steps <= 0 && core.Next(now) < far {
		s.estimateRemaining(now)
	}
	s.Estimated = s.Estimated || s.opts.Estimated
	for _, l := range s.order {
		l.finish()
		if !l.stopped && l.standsFor == 0 {
			l.countWaiting(s.startedAt)
		}
		for i := 0; i < len(l.meters) && l.known > 0; i++ {
			m := l.meters[i]
			m.Last = s.estimate(l, l.known-1).OrLater(m.Last)
		}
	}
	return &s.Forecast
}

// giveTurn grants the lane's first job if Redis would, and returns what Redis would reply.
func (s *simulation) giveTurn(now int64, l *lane, held []int64) fairqueue.Result {
	switch {
	case slices.ContainsFunc(l.meters, func(m *simMeter) bool { return m.refusedIn == s.batchNumber }):
		return fairqueue.Result{Outcome: fairqueue.Skipped}
	case len(l.costs) == 0: // an earlier turn of the batch was for the last job
		return fairqueue.Result{Outcome: fairqueue.Empty}
	}
	if l.held = held; l.isPossible() {
		for i, m := range l.meters {
			if m.ReadyAt(now, held[i]+l.cost(i)) > now {
				for _, m := range l.meters {
					m.refusedIn = s.batchNumber
				}
				return fairqueue.Result{Outcome: fairqueue.Refused}
			}
		}
		for i, m := range l.meters {
			m.charge(now, l.cost(i))
			l.estimated = l.estimated || m.isEstimate() || m.costShare > 0
		}
	}
	l.start(now)
	return fairqueue.Result{Outcome: fairqueue.Granted, At: now, Until: now + 1}
}

// readNeeds returns what the lane's first job needs now. If the job has just become the first,
// readNeeds also sets slowest and slowestAt.
func (l *lane) readNeeds(now int64) []fairqueue.Need {
	isPossible := l.isPossible()
	for i, m := range l.meters {
		n := fairqueue.Need{Cost: l.cost(i), Ready: now, Known: true, Refill: 1, PerRefill: 1}
		if isPossible {
			n.Ready = m.ReadyAt(now, l.held[i]+n.Cost)
			n.Refill, n.PerRefill = m.returnTime(n.Cost)
			n.Known, n.Blocked = !m.isEstimate() && !m.Paused, m.Closed(now)
		}
		if l.next[i] = n; l.headSince == now && n.Ready > l.slowestAt {
			l.slowest, l.slowestAt = i, n.Ready
		}
	}
	return l.next
}

// start lets the first job start. The time until the slowest meter was ready counts as a wait for
// that meter. The rest of the time, when other lanes had turns, counts as a wait for the meter that
// most lanes need.
func (l *lane) start(now int64) {
	l.waits[l.slowest] += min(now, l.slowestAt) - l.headSince
	if late := now - max(l.slowestAt, l.headSince); late > 0 {
		most := 0
		for i, m := range l.meters {
			if m.lanes > l.meters[most].lanes {
				most = i
			}
		}
		l.waits[most] += late
	}
	bottleneck := l.slowestMeter()
	if l.waits[bottleneck] > 0 {
		l.meters[bottleneck].IsBottleneck = true
	}
	l.times, l.delayedBy = append(l.times, now), append(l.delayedBy, bottleneck)
	l.headSince, l.slowest, l.slowestAt = now, 0, now
	if l.started++; l.started == l.costs[0].jobs {
		l.costs, l.started = l.costs[1:], 0
	}
}

// slowestMeter returns the index of the bottleneck: of the meters for which jobs have waited so far, the
// one that alone would start the lane's last job latest. The times for which jobs have waited do not
// tell it. In each minute they can wait for a funnel, one after the other, as long as they all wait for
// a window that is slower.
func (l *lane) slowestMeter() int {
	slowest := 0
	for i, wait := range l.waits {
		isSlower := cmp.Or(cmp.Compare(l.alone[i], l.alone[slowest]), cmp.Compare(wait, l.waits[slowest])) > 0
		if wait > 0 && (isSlower || l.waits[slowest] == 0) {
			slowest = i
		}
	}
	return slowest
}

// remaining returns the number of jobs that had no turn, and their total cost at a meter.
func (l *lane) remaining(meter int) (jobs, permits int64) {
	sum := 0.0
	for i, c := range l.costs {
		n := c.jobs
		if i == 0 {
			n -= l.started
		}
		jobs += n
		sum += float64(n) * c.of[meter]
	}
	return jobs, int64(math.Ceil(sum))
}

// estimateRemaining estimates when the last job of each lane starts: when the slowest of its meters
// alone would start it.
func (s *simulation) estimateRemaining(now int64) {
	s.Estimated = true
	s.estimateAlone(now)
	for _, l := range s.order {
		if len(l.costs) == 0 || l.stopped {
			continue
		}
		l.estimated = true
		l.lastStart = max(now, slices.Max(l.alone))
		for i, at := range l.alone {
			l.waits[i] += at - now
		}
	}
}

// estimateAlone estimates when the last job of each lane would start if the lane had only one of its
// meters, for each meter. It assumes that every other lane at the meter has as many turns as this lane,
// or fewer if it needs fewer.
func (s *simulation) estimateAlone(now int64) {
	type remaining struct {
		*lane
		meter          int     // index of the meter in the lane
		turns, permits float64 // turns of one lane, and permits of all standsFor lanes
	}
	at := map[*simMeter][]remaining{}
	for _, l := range s.order {
		if len(l.costs) > 0 && !l.stopped {
			for i, m := range l.meters {
				jobs, permits := l.remaining(i)
				if m.costShare > 0 {
					permits = int64(math.Ceil(float64(permits) * m.costShare))
				}
				at[m] = append(at[m], remaining{l, i, float64(jobs) / float64(max(1, l.standsFor)), float64(permits)})
			}
		}
	}
	for m, lanes := range at {
		round := 0.0 // cost of one turn of each lane
		for _, r := range lanes {
			round += r.permits / r.turns
		}
		slices.SortFunc(lanes, func(a, b remaining) int { return cmp.Compare(a.turns, b.turns) })
		done := 0.0 // cost of the lanes that need fewer turns
		for _, r := range lanes {
			ready := m.ReadyAt(now, max(1, int64(math.Ceil(min(done+round*r.turns, far)))))
			r.alone[r.meter] = ready
			done += r.permits
			round -= r.permits / r.turns
		}
	}
}

// finish sets the start of the last job, and the bottleneck.
func (l *lane) finish() {
	l.bottleneck = l.slowestMeter()
	if l.jobs == int64(len(l.times)) {
		if l.lastStart = 0; l.jobs > 0 {
			l.lastStart = l.times[l.jobs-1]
		}
	} else {
		if paused := slices.IndexFunc(l.meters, func(m *simMeter) bool { return m.Paused }); paused >= 0 {
			l.bottleneck = paused
		}
		l.meters[l.bottleneck].IsBottleneck = true
	}
	if unknown := slices.IndexFunc(l.meters, func(m *simMeter) bool { return m.unknownDuration }); unknown >= 0 && l.lastStart < far && l.waits[l.bottleneck] == 0 {
		l.bottleneck = unknown // no other limit delays the jobs
	}
}

// isLowerBound reports whether the time of job n, counted from 0, is only a lower bound, because
// jobs of unknown duration may have to end first.
func (l *lane) isLowerBound(n int64) bool {
	return slices.ContainsFunc(l.meters, func(m *simMeter) bool { return m.unknownDuration && n >= m.idle/m.lanes })
}

// startOf returns the start of job n, counted from 0: far if it is unknown. The starts of jobs that
// were not simulated are spread evenly up to the last one.
func (l *lane) startOf(n int64) int64 {
	simulated := int64(len(l.times))
	switch {
	case n < simulated:
		return l.times[n]
	case l.lastStart >= far || n >= l.jobs-1:
		return l.lastStart
	}
	return l.headSince + int64(float64(l.lastStart-l.headSince)*float64(n+1-simulated)/float64(l.jobs-simulated))
}
