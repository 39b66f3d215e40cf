package forecast

import (
	"cmp"
	"math"
	"slices"

	"github.com/headgate/headgate/internal/fairqueue"
)

// foresight plays what will happen to the jobs that wait if nothing else comes: the
// meters are those of the in-process limiter, and the turns are given by the core that
// gives them in truth. It knows no Redis and no clock.
type foresight struct {
	now     int64
	lanes   []*queued // in the order of their last turns
	byName  map[string]*queued
	weights map[string]fairqueue.Weight // of queues
	batch   int                         // number of the batch of turns that is played
	tried   []*queued                   // whose turns those are
	moment  int                         // number of the moment in which jobs are called that have not come
	full    []*queued                   // lanes that can have no more jobs granted in it
	// some: these are not all lanes, so all is estimated. estimated: some of it was.
	some, estimated bool
}

// queued is a lane as a forecast follows it.
type queued struct {
	name    string
	turn    int64     // when it had its last turn
	since   int64     // since when its first job waits
	meters  []*course // in the order of its name
	stops   bool      // its queue takes nothing
	costs   []costs   // of its jobs, the first in front
	jobs    int64     // how many those are
	waiting int64     // those of them that wait by now, and so stand in front
	known   int64     // those that wait or are pending, and so stand before what is planned

	given   int64 // jobs of costs[0] that had their turns
	called  int64 // jobs that were called in a moment
	moment  int
	times   []int64
	waits   []int64 // for how long its jobs have waited for each meter
	binding []int64 // how many of its jobs wait longest for each meter
	// head is when its first job became the first, and bound the meter that is ready
	// last for it, at a time.
	head, boundAt int64
	bound         int
	ends          int64 // when the last of its jobs would run; far where nobody knows
	about         bool  // the times are estimates
	// sure is how many of its jobs have a time that is no lower bound: they find permits that
	// are free without the end of a job of unknown duration.
	sure int64
	// next is what its first job needs beyond what is held, as of the batch in which it looked.
	next   []fairqueue.Need
	held   []int64
	looked int
}

// costs is what some jobs in a row cost of each meter, in the mean.
type costs struct {
	jobs int64
	of   []float64
}

// add adds jobs at the end of the lane.
func (q *queued) add(jobs int64, of []float64) {
	q.jobs += jobs
	if last := len(q.costs) - 1; last >= 0 && slices.Equal(q.costs[last].of, of) {
		q.costs[last].jobs += jobs
		return
	}
	q.costs = append(q.costs, costs{jobs, of})
}

// cost is what the first job costs of a meter: whole permits, that make the mean.
func (q *queued) cost(meter int) int64 {
	mean, n := q.costs[0].of[meter], float64(q.given)
	return int64(math.Floor((n+1)*mean+1e-9) - math.Floor(n*mean+1e-9))
}

// never reports whether the first job costs more than some meter ever gives: its turn
// comes at once, to learn that.
func (q *queued) never() bool {
	for i, m := range q.meters {
		if m.Never(q.cost(i)) {
			return true
		}
	}
	return false
}

// mostCalled is how many of its jobs may be on their way: as many as its meters can give
// at once.
func (q *queued) mostCalled() int64 {
	most := int64(math.MaxInt64)
	for i, m := range q.meters {
		most = min(most, int64(m.Capacity)/max(1, q.cost(i)))
	}
	return most
}

// play gives so many turns at most, and estimates what is left then.
func (f *foresight) play(steps int) {
	if f.some {
		steps = 0
	}
	core := fairqueue.NewForecast()
	core.SetWeights(f.weights)
	f.byName = make(map[string]*queued, len(f.lanes))
	for i, q := range f.lanes {
		f.byName[q.name] = q
		q.waits, q.binding, q.next = make([]int64, len(q.meters)), make([]int64, len(q.meters)), make([]fairqueue.Need, len(q.meters))
		for _, m := range q.meters {
			m.lanes++
		}
		if q.ends = far; q.stops || q.jobs == 0 {
			continue
		}
		q.head, q.boundAt = f.now, f.now
		core.AddReadLane(f.now, q.name, int64(i)+1, q.look(f.now))
	}
	now, results := f.now, make([]fairqueue.Result, 0, 64)
	for ; steps > 0; steps-- { // a round in which nothing is given costs a step, too
		next := core.Next(now)
		if next > now && f.come(core, now) {
			next = core.Next(now)
		}
		if now = next; now >= far {
			break
		}
		f.batch++
		results = f.grant(now, core.Turns(now, min(64, steps)), results[:0])
		steps -= max(0, len(results)-1)
		core.Tried(now, results)
		core.ToPromote(now, math.MaxInt) // they come at once
	}
	if steps <= 0 && core.Next(now) < far {
		f.estimate(now)
	}
	for _, q := range f.lanes {
		q.end()
	}
}

// come has those come that were called, and reports whether any lane was full, which then is
// not any more.
func (f *foresight) come(core *fairqueue.Core, now int64) bool {
	f.moment++
	for _, q := range f.full {
		core.Expired(now, q.name, 0, nil, len(q.costs) > 0)
	}
	full := len(f.full) > 0
	f.full = f.full[:0]
	return full
}

// grant is what Redis would answer to a batch of turns: what became of each, and then what
// their lanes need next.
func (f *foresight) grant(now int64, batch []fairqueue.Turn, results []fairqueue.Result) []fairqueue.Result {
	f.tried = f.tried[:0]
	for _, t := range batch {
		q := f.byName[t.Lane]
		f.tried, results = append(f.tried, q), append(results, f.turn(now, q, t.Held))
	}
	for i, q := range f.tried {
		if results[i].Outcome == fairqueue.Skipped || len(q.costs) == 0 {
			continue
		}
		if q.looked != f.batch {
			q.looked = f.batch
			q.look(now)
		}
		results[i].Next, results[i].Held = q.next, q.held
	}
	return results
}

// turn is what becomes of one.
func (f *foresight) turn(now int64, q *queued, held []int64) fairqueue.Result {
	for _, m := range q.meters {
		if m.refused == f.batch {
			return fairqueue.Result{Outcome: fairqueue.Skipped}
		}
	}
	if len(q.costs) == 0 { // a turn of the same batch took the last
		return fairqueue.Result{Outcome: fairqueue.Empty}
	}
	q.held = held
	never := q.never()
	if q.moment == f.moment && !never && q.called >= q.mostCalled() {
		f.full = append(f.full, q)
		return fairqueue.Result{Outcome: fairqueue.Full}
	}
	for i, m := range q.meters {
		if !never && m.ReadyAt(now, heldOf(held, i)+q.cost(i)) > now {
			for _, m := range q.meters {
				m.refused = f.batch
			}
			return fairqueue.Result{Outcome: fairqueue.Refused}
		}
	}
	sure := q.sure == int64(len(q.times))
	for i, m := range q.meters {
		if !never && !m.Take(now, q.cost(i)) {
			sure = false
		}
		q.about = q.about || m.About
	}
	if sure {
		q.sure++
	}
	if q.moment != f.moment {
		q.moment, q.called = f.moment, 0
	}
	q.called++
	q.ran(now)
	return fairqueue.Result{Outcome: fairqueue.Granted, At: now, Until: now + 1}
}

func heldOf(held []int64, meter int) int64 {
	if held == nil {
		return 0
	}
	return held[meter]
}

// look says what the lane's first job needs now. One that has just become the first waits for
// the meter that is ready last.
func (q *queued) look(now int64) []fairqueue.Need {
	never := q.never()
	for i, m := range q.meters {
		n := fairqueue.Need{Cost: q.cost(i), Ready: now, Known: true, Refill: 1, PerRefill: 1}
		if !never {
			n.Ready = m.ReadyAt(now, heldOf(q.held, i)+n.Cost)
			n.Refill, n.PerRefill = m.Refill(n.Cost), m.Together(n.Cost)
			n.Known, n.Blocked = !m.About && !m.Unknown(), m.Closed(now)
		}
		if q.next[i] = n; q.head == now && n.Ready > q.boundAt {
			q.bound, q.boundAt = i, n.Ready
		}
	}
	return q.next
}

// ran notes that the first job runs. It waited for the meter that was ready last, and
// then for the turns of others, at the meter that most lanes need.
func (q *queued) ran(now int64) {
	q.waits[q.bound] += min(now, q.boundAt) - q.head
	if late := now - max(q.boundAt, q.head); late > 0 {
		most := 0
		for i, m := range q.meters {
			if m.lanes > q.meters[most].lanes {
				most = i
			}
		}
		q.waits[most] += late
	}
	if longest := q.longest(); q.waits[longest] > 0 {
		q.binding[longest]++
	}
	q.times = append(q.times, now)
	q.head, q.bound, q.boundAt = now, 0, now
	if q.given++; q.given == q.costs[0].jobs {
		q.costs, q.given = q.costs[1:], 0
	}
}

// longest is the meter that its jobs have waited for longest.
func (q *queued) longest() (longest int) {
	for i, us := range q.waits {
		if us > q.waits[longest] {
			longest = i
		}
	}
	return longest
}

// left is how many jobs have had no turn, and what they cost of a meter.
func (q *queued) left(meter int) (jobs, permits int64) {
	sum := 0.0
	for i, c := range q.costs {
		n := c.jobs
		if i == 0 {
			n -= q.given
		}
		jobs += n
		sum += float64(n) * c.of[meter]
	}
	return jobs, int64(math.Ceil(sum))
}

// estimate says when the rest would run, each meter taken for itself: before a lane's
// last job go as many of every other lane, or all of them.
func (f *foresight) estimate(now int64) {
	f.estimated = true
	at := map[*course][]*queued{}
	for _, q := range f.lanes {
		if len(q.costs) > 0 && !q.stops {
			q.ends, q.about = now, true
			for _, m := range q.meters {
				at[m] = append(at[m], q)
			}
		}
	}
	for m, lanes := range at {
		type rest struct {
			*queued
			jobs, permits int64
		}
		rests := make([]rest, len(lanes))
		all, unread := 0.0, float64(m.Wanted) // what a round costs; what other lanes want
		for i, q := range lanes {
			jobs, permits := q.left(slices.Index(q.meters, m))
			rests[i] = rest{q, jobs, permits}
			all += float64(permits) / float64(jobs)
			unread -= float64(permits)
		}
		others := 0.0 // what they want in a round
		if unread = max(0, unread); f.some {
			others = float64(max(1, m.Lanes-int64(len(lanes)))) * all / float64(len(lanes))
		}
		slices.SortFunc(rests, func(a, b rest) int { return cmp.Compare(a.jobs, b.jobs) })
		gone := 0.0
		for _, r := range rests {
			before := gone + all*float64(r.jobs) + min(unread, others*float64(r.jobs))
			ready := m.ReadyAt(now, max(1, int64(math.Ceil(min(before, far)))))
			r.ends = max(r.ends, ready)
			r.waits[slices.Index(r.meters, m)] += ready - now
			gone += float64(r.permits)
			all -= float64(r.permits) / float64(r.jobs)
		}
	}
}

// end notes when the last job runs, and which meter those wait for of which nobody
// knows.
func (q *queued) end() {
	jobs := q.jobs - int64(len(q.times))
	switch {
	case q.jobs == 0:
		q.ends = 0
	case jobs == 0:
		q.ends = q.times[len(q.times)-1]
	default:
		longest := q.longest()
		for i, m := range q.meters {
			if q.ends >= far && m.Unknown() {
				longest = i
			}
		}
		q.binding[longest] += jobs
	}
}

// least reports whether the time of the n-th job, from 0, is a lower bound: it is not known
// how long the jobs run that hold permits which it needs.
func (q *queued) least(n int64) bool {
	return n >= q.sure && slices.ContainsFunc(q.meters, func(m *course) bool { return m.Least })
}

// at is when the n-th job, from 0, would run: far where nobody knows.
func (q *queued) at(n int64) int64 {
	followed := int64(len(q.times))
	switch {
	case n < followed:
		return q.times[n]
	case q.ends >= far || n >= q.jobs-1:
		return q.ends
	}
	return q.head + int64(float64(q.ends-q.head)*float64(n+1-followed)/float64(q.jobs-followed))
}
