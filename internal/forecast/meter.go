package forecast

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/meter"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// simMeter is a meter in a simulation. Its Meter is nil if there is no such limit, or if the
// duration of jobs at a concurrency limit is unknown. A nil Meter never runs out of permits, but
// simMeter can still be paused or blocked.
type simMeter struct {
	Backlog
	meter.Gate
	limit    *meter.Limit // with the overrides of the key
	capacity int64        // most permits at once; 0 if the limit does not exist
	// lease is the lease of a concurrency limit in microseconds, 0 for other limits. Permits of a
	// concurrency limit return when jobs end, so the times are estimates.
	lease int64
	// unknownDuration reports whether the duration of the jobs at a concurrency limit is unknown,
	// so that times are lower bounds. idle is the number of its permits that are free now.
	unknownDuration bool
	idle            int64

	// costShare is the Options' CostShare, and 0 if the jobs cost what they take. settled has the
	// permits that jobs have in use, in parts of one.
	costShare, settled float64

	lanes     int64 // number of simulated lanes that need the meter
	refusedIn int   // the last batch in which a turn that needs the meter was refused
}

// far is the time of an event whose time is unknown.
const far = meter.MaxTime

// unusedMeter returns a meter that has no permits in use. If Options has no such limit, jobs wait
// at the meter for an unknown time.
func (s *simulation) unusedMeter(n throttle.Need) *simMeter {
	i := slices.IndexFunc(s.opts.Limits, func(l throttle.Limit) bool { return l.Name == n.Limit })
	if i < 0 {
		return &simMeter{Backlog: s.Backlog(n.Limit, n.Key), Gate: meter.Gate{Paused: true}}
	}
	l := s.opts.Limits[i]
	if o, ok := l.Overrides[n.Key]; ok {
		l = l.With(o)
	}
	limit := &meter.Limit{
		Kind: string(l.Kind), N: l.Rate.N, Per: l.Rate.Per, Margin: l.Margin, Capacity: l.MaxCost(), Zone: l.Zone,
		Lease: cmp.Or(l.Lease, meter.DefaultLease),
	}
	state := &waitdb.MeterState{Limit: limit, State: []any{int64(0)}}
	return newMeter(waitdb.Meter{Limit: n.Limit, Key: n.Key, Capacity: l.MaxCost(), State: state}, s.startedAt, s.meanDuration(n))
}

// newMeter returns a meter in the state that was read. meanDuration is how long jobs hold permits
// of a concurrency limit, 0 if it is unknown.
func newMeter(read waitdb.Meter, now int64, meanDuration time.Duration) *simMeter {
	m := &simMeter{Backlog: Backlog{Need: throttle.Need{Limit: read.Limit, Key: read.Key, Cost: read.Wanted}, Last: Estimate{Known: true}}}
	state, reserved := read.State, int64(read.Reserved)
	if state.Limit.Kind == meter.Concurrency {
		m.defineSlots(now, state.State[0].(int64), int64(read.Capacity), state.Limit.Lease, meanDuration)
		m.idle -= reserved
	} else {
		m.Meter, m.limit, m.capacity = meter.Read(state.Limit, state.State), state.Limit, int64(state.Limit.Capacity)
		m.Meter.Define(m.limit)
	}
	m.Paused, m.Blocked = read.Paused, state.BlockedUntil
	if reserved > 0 && m.Meter != nil {
		meter.Charge(m.Meter, now, reserved)
	}
	return m
}

// defineSlots replaces a concurrency limit by a rate (Little's law): if at most n jobs run at once,
// at most n jobs start in any period of meanDuration. held is the number of slots in use now.
func (m *simMeter) defineSlots(now, held, slots int64, lease, meanDuration time.Duration) {
	m.lease, m.capacity, m.idle = lease.Microseconds(), slots, slots-held
	if m.unknownDuration = meanDuration <= 0; m.unknownDuration {
		return
	}
	slots = min(slots, maxSteps) // the meter keeps a time for each
	period := max(time.Microsecond, meanDuration)
	m.limit = &meter.Limit{Kind: meter.SlidingLog, N: int(slots), Per: period, Capacity: int(slots)}
	m.Meter, m.capacity = meter.New(m.limit), slots
	held = min(held, slots)
	for i := range held { // as if the running jobs had started evenly over the last period
		ago, _ := meter.Span(held-1-i, held, period.Microseconds())
		m.Meter.Take(now-ago, 1)
	}
}

// isEstimate reports whether the times of the meter depend on the mean duration of jobs.
func (m *simMeter) isEstimate() bool { return m.lease > 0 && !m.unknownDuration }

// ReadyAt returns the first time at which k permits are free, or far if it is unknown.
func (m *simMeter) ReadyAt(now, k int64) int64 {
	switch {
	case m.Paused:
		return far
	case m.Meter == nil:
		return max(now, m.Blocked)
	}
	return m.ReadyFrom(now, k, now)
}

// charge takes the permits that are left of k when the call of their job has ended.
func (m *simMeter) charge(now, k int64) {
	if m.costShare > 0 {
		before := m.settled
		m.settled += float64(k) * m.costShare
		k = int64(math.Floor(m.settled) - math.Floor(before))
	}
	if k > 0 && m.Meter != nil {
		m.Take(now, k)
	}
}

// returnTime returns after how many microseconds the k permits of a job are free again, and how
// many such jobs return their permits together: for a window all jobs that fit in it, or else 1.
func (m *simMeter) returnTime(k int64) (us, together int64) {
	switch {
	case m.lease > 0:
		return m.lease, 1
	case m.Meter == nil:
		return 1, 1
	case m.limit.Kind == meter.Funnel || m.limit.Kind == meter.TokenBucket:
		us, rest := meter.Span(k, int64(m.limit.N), m.limit.PeriodUS())
		return us + min(1, rest), 1
	}
	return m.limit.PeriodUS(), int64(m.limit.N) / max(1, k)
}
