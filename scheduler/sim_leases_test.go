package scheduler

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/headgate/headgate/throttle"
	"github.com/headgate/headgate/throttle/throttletest"
)

// mostOutlasting is how many jobs of a world outlast their leases.
const mostOutlasting = 6

// addSlots gives a world with changing leases a concurrency limit of few slots.
func (w *sim) addSlots() {
	if w.has(leases) {
		last := &w.limits[len(w.limits)-1]
		*last = throttle.Limit{Name: last.Name, Kind: throttle.Concurrency, Capacity: 1 + int(w.seed%2), Lease: 10 * time.Second}
	}
}

// crowd makes the last lanes need what the faults of leases and of settling are about, and gives jobs
// that settle workers enough to use a meter up at once.
func (w *sim) crowd() {
	if w.has(settling) {
		w.lanes = w.lanes[:min(len(w.lanes), 2)]
		last := w.lanes[len(w.lanes)-1]
		last.needs, last.jobs = []throttle.Need{{Limit: w.limits[0].Name, Key: crowded, Cost: 1}}, 60
		w.config.Concurrency = 16
	}
	if w.has(leases) {
		w.lanes[0].needs, w.lanes[0].jobs = []throttle.Need{{Limit: w.limits[len(w.limits)-1].Name, Cost: 1}}, max(w.lanes[0].jobs, 12)
	}
}

// outlasts makes some of the jobs that need a slot take longer than its lease.
func (w *sim) outlasts(l *simLane, o *simOrder, r *rand.Rand) {
	if w.has(leases) && l == w.lanes[0] && w.outlast < mostOutlasting && r.IntN(2) == 0 {
		w.outlast++
		o.takes = milliseconds(between(r, 5000, 15_000))
	}
}

// excuse excuses the waits of lanes while a job runs that takes longer than its lane's others.
func (w *sim) excuse(job *simJob) {
	if job.takes > job.lane.takes {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.disturb(job.takes + time.Second)
	}
}

// changeLease makes the lease of a concurrency limit shorter or longer.
func (w *sim) changeLease() {
	limit, ok := w.anyLimit()
	for i := range w.limits {
		if limit.Kind != throttle.Concurrency {
			limit = w.limits[i]
		}
	}
	limit = w.inForce(limit.Name)
	if !ok || limit.Kind != throttle.Concurrency {
		return
	}
	limit.Lease = milliseconds(between(w.rand, 1000, 3000))
	if w.rand.IntN(3) == 0 {
		limit.Lease *= 20
	}
	w.note(simEvent{kind: "leases changed", text: fmt.Sprintf("limit %s is now %s, with leases of %s", limit.Name, limit, limit.Lease), limit: &limit, explains: lanesOf(limit.Name)})
	w.operator.must(w.operator.limiter.Set(w.t.Context(), limit))
}

// ends notes that a handler has returned, or was told to stop.
func (w *sim) ends(taken map[throttle.Need]*admission) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range taken {
		if a.ended.IsZero() {
			a.ended = time.Now()
		}
	}
}

// judgeSlots checks that no more slots than the capacity are in use at once: from when a handler
// begins until it returns or is told to stop, however the lease changes meanwhile.
func (w *sim) judgeSlots(meter string, admissions []*admission) {
	limit := w.defined(limitOf(meter))
	if limit.Kind != throttle.Concurrency || !w.oneClock() || w.changedKind(limit.Name) {
		return
	}
	var used []throttletest.Admission
	for _, a := range admissions {
		from, to := a.started, a.ended
		if a.job == "" {
			from, to = a.at, a.until
		}
		if !from.IsZero() && !to.IsZero() {
			used = append(used, throttletest.Admission{At: from.UnixMicro(), Until: to.UnixMicro(), Cost: a.cost})
		}
	}
	if err := throttletest.Check(limit, used); err != nil {
		w.breaks(w.lanesAtMeter(meter), 0, w.now(), "slots of meter %s are used by too many handlers: %v", meter, err)
	}
}
