// Package forecast estimates when waiting jobs will run. It simulates the turns of package
// fairqueue and the meters of package meter forward in time.
package forecast

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/fairqueue"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// Forecast estimates when the waiting jobs will run if no jobs are added, no limit is changed and
// workers are free. [Make] makes a Forecast.
type Forecast struct {
	At time.Time // by Redis's clock
	// Jobs is the number of waiting jobs in the lanes that were read. It does not include pending
	// and planned jobs.
	Jobs int
	// Pending is the number of jobs in asynq's pending lists that the forecast includes.
	// WithoutRule is the number of pending jobs that it leaves out, because their rule is unknown.
	Pending, WithoutRule int
	// Partial is true if there are lanes that were not read.
	Partial bool
	// Estimated is true if some lanes or turns were not simulated, or if the pending jobs come from
	// a sample.
	Estimated bool

	lanes  map[string]*lane
	order  []*lane
	meters map[string]*simMeter
}

// Options are the inputs of a forecast that are not in the limiter's Redis. The zero value means a
// forecast of the waiting jobs alone.
type Options struct {
	// Duration returns the mean time for which a queue's jobs run and so hold permits of
	// concurrency limits; 0 if it is unknown. Nil means that all durations are unknown.
	Duration func(queue string) time.Duration
	// CostShare returns the part of a job's cost at a limit that its call costs in the end, as jobs
	// that have ended settled it; 0 if it is unknown. Nil means that jobs cost what they take.
	CostShare func(limit string) float64
	// Stopped reports whether a queue is paused, so that the start of its jobs is unknown. Nil
	// means that no queue is paused.
	Stopped func(queue string) bool
	// Limits are limits that may be missing in Redis. A limit that is missing there counts as
	// unused.
	Limits []throttle.Limit
	// WithoutRule is the number of pending jobs whose rule is unknown.
	WithoutRule int
	// Estimated reports whether the pending jobs come from a sample.
	Estimated bool

	pending, planned []group
}

// group is a number of jobs of one lane with the same costs.
type group struct {
	lane string
	costs
}

// Pending adds pending jobs behind the waiting jobs of their lane. Each job has these needs, and
// the queue and the fairness key of like.
func (o *Options) Pending(like waitdb.Job, jobs int, needs ...throttle.Need) error {
	return addGroup(&o.pending, like, jobs, needs)
}

// Plan adds jobs that would be enqueued now. Its parameters are those of Pending. The jobs go
// behind all other jobs of their lane. A job without needs waits for nothing, so planning it is an
// error.
func (o *Options) Plan(like waitdb.Job, jobs int, needs ...throttle.Need) error {
	return addGroup(&o.planned, like, jobs, needs)
}

func addGroup(groups *[]group, like waitdb.Job, jobs int, needs []throttle.Need) error {
	needs, err := throttle.Normalize(needs...)
	if err = cmp.Or(err, like.ValidateFair()); err != nil {
		return err
	}
	meters, each := make([]string, len(needs)), make([]float64, len(needs))
	for i, n := range needs {
		meters[i], each[i] = meterOf(n), float64(n.Cost)
	}
	lane := fairqueue.Lane(like.Queue, meters, fairqueue.FairnessLine(like.Fair, like.Weight))
	*groups = append(*groups, group{lane, costs{int64(jobs), each}})
	return nil
}

// Forecast makes a forecast without Redis: no jobs wait, and the Limits are unused.
func (o Options) Forecast(now time.Time) *Forecast {
	s := newSimulation(now.UnixMicro(), o)
	s.joinAll()
	return s.simulate(maxSteps)
}

// Estimate is the time at which a job would run.
type Estimate struct {
	// Need is the meter that delays the job most, without a cost. It is zero if the job runs
	// at once.
	throttle.Need
	// StartsIn is the time until the job runs. StartsIn is valid only if Known or AtLeast is true:
	// both are false, for example, if the queue is paused.
	StartsIn time.Duration
	Known    bool
	// AtLeast reports whether StartsIn is only a lower bound, because jobs of unknown duration must
	// end first. If AtLeast is true, Known is false.
	AtLeast bool
	// Estimated reports whether the job waits for running jobs to end, or was not simulated, or the
	// whole forecast is estimated.
	Estimated bool
}

// isLater reports whether e is after other. A lower bound is after all known times, and an unknown
// time is after all lower bounds.
func (e Estimate) isLater(other Estimate) bool {
	if e.Known != other.Known {
		return other.Known
	}
	if e.AtLeast != other.AtLeast {
		return other.AtLeast
	}
	return e.StartsIn > other.StartsIn
}

// When says when the job starts, for a sentence such as "starts in about 5 min". The function in
// formats the time until the start, and at its date. All texts about starts come from here.
func (e Estimate) When(in, at func(time.Duration) string) string {
	switch {
	case !e.Known && (!e.AtLeast || e.StartsIn <= 0):
		return "at an unknown time"
	case !e.Known:
		return "no earlier than " + at(e.StartsIn)
	case e.StartsIn <= 0:
		return "now"
	case e.Estimated:
		return "in about " + in(e.StartsIn)
	}
	return "in " + in(e.StartsIn)
}

// OfPosition returns the estimate of a waiting job.
func OfPosition(p waitdb.Position) Estimate {
	return Estimate{Need: needOf(p.Bottleneck), Known: p.Known, StartsIn: p.StartsIn, Estimated: p.Estimated, AtLeast: p.AtLeast}
}

// OrLater returns the later of two estimates. If the later time is unknown, the result's lower
// bound is the highest known time or lower bound of the two.
func (e Estimate) OrLater(other Estimate) Estimate {
	if other.isLater(e) {
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

// estimate returns when job n of a lane would run. The lane's first job is number 0.
func (f *Forecast) estimate(l *lane, n int64) Estimate {
	at := l.startOf(n)
	e := Estimate{Known: at < far, Estimated: f.Estimated || l.estimated && at > f.At.UnixMicro()}
	if e.Known {
		e.StartsIn, e.AtLeast = microseconds(max(0, at-f.At.UnixMicro())), l.isLowerBound(n)
		e.Known = !e.AtLeast
	}
	if e.StartsIn > 0 || !e.Known {
		m := l.meters[l.bottleneckOf(n)]
		e.Need = throttle.Need{Limit: m.Limit, Key: m.Key}
	}
	return e
}

// Last looks at the last waiting or pending job of each lane. last is the latest known time of
// these jobs. unknown is the latest estimate without a known time, or nil.
func (f *Forecast) Last() (last Estimate, unknown *Estimate) {
	last.Known = true
	for _, l := range f.order {
		if l.known == 0 {
			continue
		}
		switch e := f.estimate(l, l.known-1); {
		case !e.Known:
			if unknown != nil {
				e = e.OrLater(*unknown)
			}
			unknown = &e
		case e.isLater(last):
			last = e
		}
	}
	return last, unknown
}

// Job returns when the waiting job with a rank in a lane would run. The lane's first job has rank
// 1. A rank beyond the lane's last waiting job means that last job. Job returns false if the
// forecast has no waiting jobs of the lane.
func (f *Forecast) Job(lane string, rank int) (Estimate, bool) {
	l := f.lanes[lane]
	if l == nil || l.waiting == 0 {
		return Estimate{}, false
	}
	return f.estimate(l, min(int64(max(1, rank)), l.waiting)-1), true
}

// Position returns p with the forecast's estimate. The forecast may be some seconds older than p.
// If p is of a granted job, or of a lane that is not in the forecast, Position returns p unchanged.
func (f *Forecast) Position(p waitdb.Position) waitdb.Position {
	l := f.lanes[p.Lane.Name]
	if p.Granted || l == nil || l.waiting == 0 {
		return p
	}
	now, started := p.Since.Add(p.WaitedFor), 0
	if now.Sub(f.At) >= time.Second { // before that, Rank may still count jobs that should have started
		started, _ = slices.BinarySearch(l.times, now.UnixMicro()+1)
	}
	e, _ := f.Job(p.Lane.Name, started+max(1, p.Rank))
	p.StartsAt, p.Known, p.Estimated, p.AtLeast = f.At.Add(e.StartsIn), e.Known, e.Estimated, e.AtLeast
	p.StartsIn = max(0, p.StartsAt.Sub(now))
	if e.Limit != "" {
		p.Bottleneck = meterOf(e.Need)
	}
	return p
}

// Backlog is the demand for permits of one meter.
type Backlog struct {
	throttle.Need           // the cost is the number of permits that waiting and granted jobs need
	Since         time.Time // when the oldest first job of the lanes that wait for this meter began to wait; zero if unknown
	Last          Estimate  // when the last waiting or pending job that needs the meter would run; if there is none, StartsIn is 0
	IsBottleneck  bool      // a job waits longer for this meter than for its other meters
	// HoldsJobs reports whether the first job of a lane would start now if it did not need this
	// meter.
	HoldsJobs bool
	// Jobs is the number of waiting jobs for which Estimate.Need is this meter, and Permits is what
	// these jobs need of it. Read is the number of permits that all waiting jobs need of it. The
	// three numbers are of the lanes that were read.
	Jobs, Permits, Read int64
}

// Backlog returns the backlog of a meter.
func (f *Forecast) Backlog(limit, key string) Backlog {
	if m := f.meters[limit+"|"+key]; m != nil {
		return m.Backlog
	}
	return Backlog{Need: throttle.Need{Limit: limit, Key: key}, Last: Estimate{Known: true}}
}

// Backlogs returns the backlogs of all meters that jobs need, ordered by limit and key.
func (f *Forecast) Backlogs() (backlogs []Backlog) {
	for _, id := range slices.Sorted(maps.Keys(f.meters)) {
		if m := f.meters[id]; m.Cost > 0 || m.lanes > 0 {
			backlogs = append(backlogs, m.Backlog)
		}
	}
	return backlogs
}

// Limits returns, by limit, when the last waiting or pending job that needs the limit would run.
func (f *Forecast) Limits() map[string]Estimate {
	limits := map[string]Estimate{}
	for _, b := range f.Backlogs() {
		if last, seen := limits[b.Limit]; seen {
			b.Last = b.Last.OrLater(last)
		}
		limits[b.Limit] = b.Last
	}
	return limits
}

// Planned returns when the first and the last planned job would run.
func (f *Forecast) Planned() (first, last Estimate) {
	last.Known = true
	planned := slices.DeleteFunc(slices.Clone(f.order), func(l *lane) bool { return l.jobs == l.known })
	for i, l := range planned {
		if begins := f.estimate(l, l.known); i == 0 || first.isLater(begins) {
			first = begins
		}
		last = f.estimate(l, l.jobs-1).OrLater(last)
	}
	return first, last
}

// meterOf returns the name of a need's meter, limit|key, as in the names of lanes.
func meterOf(n throttle.Need) string { return n.Limit + "|" + n.Key }

func needOf(meter string) throttle.Need {
	limit, key, _ := strings.Cut(meter, "|")
	return throttle.Need{Limit: limit, Key: key}
}

func microseconds(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
