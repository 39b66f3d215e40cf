package forecast

import (
	"math"
	"time"
)

// setHolder sets the meter that holds the lane's first job back at the time now: the one whose
// permits come last. If jobs of unknown duration have all slots of a concurrency limit, that limit
// counts as the last.
func (l *lane) setHolder(now int64) {
	latest := now
	for i, m := range l.meters {
		ready := l.next[i].Ready
		if m.unknownDuration && m.idle < l.next[i].Cost {
			ready = far
		}
		if ready > latest {
			l.holder, latest = i, ready
		}
	}
	if l.holder >= 0 && l.waiting > 0 {
		l.meters[l.holder].HoldsJobs = true
	}
}

// bottleneckOf returns the index of the meter that delays the lane's job number n, from 0, most. All texts and counts of what a job waits for come from here.
func (l *lane) bottleneckOf(n int64) int {
	switch {
	case l.holder >= 0 && l.meters[l.holder].unknownDuration:
		return l.holder // the simulation does not know this wait
	case n < int64(len(l.times)) && l.waits[l.bottleneck] > 0:
		return l.delayedBy[n]
	}
	return l.bottleneck
}

// countWaiting counts the lane's waiting jobs at their bottlenecks. A job that starts at the time
// now waits for no meter.
func (l *lane) countWaiting(now int64) {
	jobs, first := make([]int64, len(l.meters)), l.holder
	count := func(n, more int64) {
		i := l.bottleneckOf(n)
		jobs[i] += more
		if first < 0 {
			first = i
		}
	}
	simulated := min(l.waiting, int64(len(l.times)))
	for n := range simulated {
		if l.times[n] > now || l.isLowerBound(n) {
			count(n, 1)
		}
	}
	if simulated < l.waiting {
		count(simulated, l.waiting-simulated)
	}
	for i, m := range l.meters {
		m.Jobs += jobs[i]
		m.Permits += int64(math.Round(float64(jobs[i]) * l.meanCost[i]))
		m.Read += int64(math.Round(float64(l.waiting) * l.meanCost[i]))
	}
	if first < 0 || l.since == 0 {
		return
	}
	m, since := l.meters[first], time.UnixMicro(l.since)
	if m.Since.IsZero() || since.Before(m.Since) {
		m.Since = since
	}
}
