package forecast

import (
	"cmp"
	"math"
	"slices"

	"github.com/headgate/headgate/internal/fairqueue"
)

// simulation plays what will happen to the jobs that wait if nothing else comes. Its meters are
// those of the in-process limiter, and the core gives the turns as in production. It knows no Redis
// and no clock.
type simulation struct {
	now     int64
	lanes   []*lane // in the order of their last turns
	byName  map[string]*lane
	weights map[string]fairqueue.Weight // of queues
	batch   int                         // number of the batch of turns that is played
	tried   []*lane                     // the lanes of those turns
	// Granted jobs come before time goes on. moment counts how often time did, and fullLanes can
	// have no more jobs granted in this moment.
	moment    int
	fullLanes []*lane
	// partial: these are not all lanes, so all is estimated. estimated: some of it was.
	partial, estimated bool
}

// lane is a lane in a simulation.
type lane struct {
	name         string
	lastTurn     int64       // when that was
	since        int64       // since when its first job waits
	meters       []*simMeter // in the order of its name
	queueStopped bool        // its queue takes no jobs
	costs        []costs     // of its jobs, the first in front
	// Of its jobs, first waiting ones wait by now, known ones wait or are pending, and the rest is
	// planned.
	jobs, waiting, known int64

	given       int64 // jobs of costs[0] that had their turns
	granted     int64 // jobs that were granted in a moment
	moment      int
	times       []int64 // when jobs start
	waits       []int64 // for how long its jobs have waited for each meter
	bottlenecks []int64 // how many of its jobs wait longest for each meter
	// headSince is when its first job became the first, and slowest the meter that is ready last
	// for it, at slowestAt.
	headSince, slowestAt int64
	slowest              int
	ends                 int64 // when the last of its jobs would start; far if unknown
	estimated            bool
	// certain is how many of its jobs have a time that is no lower bound: they find free permits
	// without the end of a job of unknown duration.
	certain int64
	// next is what its first job needs beyond what is held, as read in a batch.
	next        []fairqueue.Need
	held        []int64
	readInBatch int
}

// costs is what some jobs in a row cost of each meter, on average.
type costs struct {
	jobs int64
	of   []float64
}

// add adds jobs at the end of the lane.
func (l *lane) add(jobs int64, of []float64) {
	l.jobs += jobs
	if last := len(l.costs) - 1; last >= 0 && slices.Equal(l.costs[last].of, of) {
		l.costs[last].jobs += jobs
		return
	}
	l.costs = append(l.costs, costs{jobs, of})
}

// cost returns what the first job costs of a meter: whole permits, which make the average.
func (l *lane) cost(meter int) int64 {
	mean, n := l.costs[0].of[meter], float64(l.given)
	return int64(math.Floor((n+1)*mean+1e-9) - math.Floor(n*mean+1e-9))
}

// isImpossible reports whether the first job costs more than one of its meters can ever give. Such a
// job gets its turn at once, and is archived.
func (l *lane) isImpossible() bool {
	for i, m := range l.meters {
		if m.Exceeds(l.cost(i)) {
			return true
		}
	}
	return false
}

// maxGranted returns how many of its jobs may be granted: as many as its meters can give at once.
func (l *lane) maxGranted() int64 {
	most := int64(math.MaxInt64)
	for i, m := range l.meters {
		most = min(most, m.Capacity/max(1, l.cost(i)))
	}
	return most
}

// run gives at most so many turns, and estimates what is left then.
func (f *simulation) run(steps int) {
	if f.partial {
		steps = 0
	}
	core := fairqueue.NewExact()
	core.SetWeights(f.weights)
	f.byName = make(map[string]*lane, len(f.lanes))
	for i, l := range f.lanes {
		f.byName[l.name] = l
		l.waits, l.bottlenecks, l.next = make([]int64, len(l.meters)), make([]int64, len(l.meters)), make([]fairqueue.Need, len(l.meters))
		for _, m := range l.meters {
			m.lanes++
		}
		if l.ends = far; l.queueStopped || l.jobs == 0 {
			continue
		}
		l.headSince, l.slowestAt = f.now, f.now
		core.AddReadLane(f.now, l.name, int64(i)+1, l.readNeeds(f.now))
	}
	now, results := f.now, make([]fairqueue.Result, 0, 64)
	for ; steps > 0; steps-- { // a round in which nothing is given costs a step, too
		next := core.Next(now)
		if next > now && f.arrive(core, now) {
			next = core.Next(now)
		}
		if now = next; now >= far {
			break
		}
		f.batch++
		results = f.grant(now, core.Turns(now, min(64, steps)), results[:0])
		steps -= max(0, len(results)-1)
		core.ApplyResults(now, results)
		core.ToPromote(now, math.MaxInt) // they come at once
	}
	if steps <= 0 && core.Next(now) < far {
		f.estimateRemaining(now)
	}
	for _, l := range f.lanes {
		l.finish()
	}
}

// arrive has granted jobs come, and reports whether any lane was full.
func (f *simulation) arrive(core *fairqueue.Core, now int64) bool {
	f.moment++
	for _, l := range f.fullLanes {
		core.Expired(now, l.name, 0, nil, len(l.costs) > 0)
	}
	full := len(f.fullLanes) > 0
	f.fullLanes = f.fullLanes[:0]
	return full
}

// grant returns what Redis would reply to a batch of turns: what became of each, and then what
// their lanes need next.
func (f *simulation) grant(now int64, batch []fairqueue.Turn, results []fairqueue.Result) []fairqueue.Result {
	f.tried = f.tried[:0]
	for _, t := range batch {
		l := f.byName[t.Lane]
		f.tried, results = append(f.tried, l), append(results, f.try(now, l, t.Held))
	}
	for i, l := range f.tried {
		if results[i].Outcome == fairqueue.Skipped || len(l.costs) == 0 {
			continue
		}
		if l.readInBatch != f.batch {
			l.readInBatch = f.batch
			l.readNeeds(now)
		}
		results[i].Next, results[i].Held = l.next, l.held
	}
	return results
}

func (f *simulation) try(now int64, l *lane, held []int64) fairqueue.Result {
	for _, m := range l.meters {
		if m.refusedIn == f.batch {
			return fairqueue.Result{Outcome: fairqueue.Skipped}
		}
	}
	if len(l.costs) == 0 { // a turn of the same batch took the last
		return fairqueue.Result{Outcome: fairqueue.Empty}
	}
	l.held = held
	never := l.isImpossible()
	if l.moment == f.moment && !never && l.granted >= l.maxGranted() {
		f.fullLanes = append(f.fullLanes, l)
		return fairqueue.Result{Outcome: fairqueue.Full}
	}
	for i, m := range l.meters {
		if !never && m.ReadyAt(now, l.heldOf(i)+l.cost(i)) > now {
			for _, m := range l.meters {
				m.refusedIn = f.batch
			}
			return fairqueue.Result{Outcome: fairqueue.Refused}
		}
	}
	certain := l.certain == int64(len(l.times))
	for i, m := range l.meters {
		if !never && !m.Take(now, l.cost(i)) {
			certain = false
		}
		l.estimated = l.estimated || m.Estimated
	}
	if certain {
		l.certain++
	}
	if l.moment != f.moment {
		l.moment, l.granted = f.moment, 0
	}
	l.granted++
	l.start(now)
	return fairqueue.Result{Outcome: fairqueue.Granted, At: now, Until: now + 1}
}

func (l *lane) heldOf(meter int) int64 {
	if l.held == nil {
		return 0
	}
	return l.held[meter]
}

// readNeeds returns what the lane's first job needs now. A job that has just become the first waits
// for the meter that is ready last.
func (l *lane) readNeeds(now int64) []fairqueue.Need {
	never := l.isImpossible()
	for i, m := range l.meters {
		n := fairqueue.Need{Cost: l.cost(i), Ready: now, Known: true, Refill: 1, PerRefill: 1}
		if !never {
			n.Ready = m.ReadyAt(now, l.heldOf(i)+n.Cost)
			n.Refill, n.PerRefill = m.Refill(n.Cost), m.PerRefill(n.Cost)
			n.Known, n.Blocked = !m.Estimated && !m.IsPaused(), m.Closed(now)
		}
		if l.next[i] = n; l.headSince == now && n.Ready > l.slowestAt {
			l.slowest, l.slowestAt = i, n.Ready
		}
	}
	return l.next
}

// start notes that the first job starts. It waited for the meter that was ready last, and then for
// the turns of others, at the meter that most lanes need.
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
	if longest := l.longest(); l.waits[longest] > 0 {
		l.bottlenecks[longest]++
	}
	l.times = append(l.times, now)
	l.headSince, l.slowest, l.slowestAt = now, 0, now
	if l.given++; l.given == l.costs[0].jobs {
		l.costs, l.given = l.costs[1:], 0
	}
}

// longest returns the meter that its jobs have waited for longest.
func (l *lane) longest() (longest int) {
	for i, us := range l.waits {
		if us > l.waits[longest] {
			longest = i
		}
	}
	return longest
}

// remaining returns how many jobs have had no turn, and what they cost of a meter.
func (l *lane) remaining(meter int) (jobs, permits int64) {
	sum := 0.0
	for i, c := range l.costs {
		n := c.jobs
		if i == 0 {
			n -= l.given
		}
		jobs += n
		sum += float64(n) * c.of[meter]
	}
	return jobs, int64(math.Ceil(sum))
}

// estimateRemaining estimates when the remaining jobs start, for each meter on its own. It assumes that
// before a lane's last job, every other lane of the meter has as many turns, or all that it needs.
func (f *simulation) estimateRemaining(now int64) {
	f.estimated = true
	at := map[*simMeter][]*lane{}
	for _, l := range f.lanes {
		if len(l.costs) > 0 && !l.queueStopped {
			l.ends, l.estimated = now, true
			for _, m := range l.meters {
				at[m] = append(at[m], l)
			}
		}
	}
	for m, lanes := range at {
		type rest struct {
			*lane
			jobs, permits int64
		}
		rests := make([]rest, len(lanes))
		round, unread := 0.0, float64(m.Wanted) // what a round costs; what other lanes want
		for i, l := range lanes {
			jobs, permits := l.remaining(slices.Index(l.meters, m))
			rests[i] = rest{l, jobs, permits}
			round += float64(permits) / float64(jobs)
			unread -= float64(permits)
		}
		others := 0.0 // what they want in a round
		if unread = max(0, unread); f.partial {
			others = float64(max(1, m.CountedLanes-int64(len(lanes)))) * round / float64(len(lanes))
		}
		slices.SortFunc(rests, func(a, b rest) int { return cmp.Compare(a.jobs, b.jobs) })
		gone := 0.0
		for _, r := range rests {
			before := gone + round*float64(r.jobs) + min(unread, others*float64(r.jobs))
			ready := m.ReadyAt(now, max(1, int64(math.Ceil(min(before, far)))))
			r.ends = max(r.ends, ready)
			r.waits[slices.Index(r.meters, m)] += ready - now
			gone += float64(r.permits)
			round -= float64(r.permits) / float64(r.jobs)
		}
	}
}

// finish notes when the last job starts, and for which meter those wait whose time is unknown.
func (l *lane) finish() {
	jobs := l.jobs - int64(len(l.times))
	switch {
	case l.jobs == 0:
		l.ends = 0
	case jobs == 0:
		l.ends = l.times[len(l.times)-1]
	default:
		longest := l.longest()
		for i, m := range l.meters {
			if l.ends >= far && m.IsPaused() {
				longest = i
			}
		}
		l.bottlenecks[longest] += jobs
	}
}

// isLowerBound reports whether the time of the n-th job, from 0, is a lower bound: it is unknown
// how long the jobs run that hold permits which it needs.
func (l *lane) isLowerBound(n int64) bool {
	return n >= l.certain && slices.ContainsFunc(l.meters, func(m *simMeter) bool { return m.UnknownDuration })
}

// startOf returns when the n-th job, from 0, would start: far if unknown.
func (l *lane) startOf(n int64) int64 {
	followed := int64(len(l.times))
	switch {
	case n < followed:
		return l.times[n]
	case l.ends >= far || n >= l.jobs-1:
		return l.ends
	}
	return l.headSince + int64(float64(l.ends-l.headSince)*float64(n+1-followed)/float64(l.jobs-followed))
}
