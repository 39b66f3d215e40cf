package forecast

import (
	"time"

	"github.com/headgate/headgate/internal/meter"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// simMeter is a meter in a simulation: its state, and the changes that time alone makes to it. A
// simMeter without a Meter has no limit, and a job that needs it starts at once.
type simMeter struct {
	throttle.Need // limit and key; the cost means nothing
	meter.Gate
	limit    *meter.Limit // rate of the key
	Capacity int64        // most permits at once
	Reserved int64        // permits reserved for granted jobs
	Wanted   int64        // permits that waiting jobs need
	// CountedLanes is the number of lanes that take turns at the meter, as Redis last counted them.
	CountedLanes int64
	// Estimated reports whether permits are returned by jobs that end, so that times are estimates.
	Estimated bool
	// UnknownDuration reports whether the duration of these jobs is unknown. The simulation lets
	// them end at once, so that times are lower bounds.
	UnknownDuration bool
	lease           int64 // of a concurrency limit, microseconds; else 0
	idle            int64 // permits that are free now, if UnknownDuration

	lanes          int64 // number of simulated lanes that need the meter
	isBottleneck   bool  // some jobs wait longest for it
	hasLowerBounds bool  // some jobs that need it have a lower bound as their time
	refusedIn      int   // number of the batch in which it refused a turn
}

// far is the time of an event whose time is unknown.
const far = meter.MaxTime

// instantMeter is a concurrency meter whose permits are returned at once.
type instantMeter struct{ meter.Meter }

func (instantMeter) ReadyAt(now, _ int64) int64 { return now }

// newMeter returns the unused meter of a key. meanDuration is the mean duration of a job that holds
// permits of a concurrency limit, 0 if it is unknown.
func newMeter(l throttle.Limit, key string, now int64, meanDuration time.Duration) *simMeter {
	if o, differs := l.Overrides[key]; differs {
		l = l.With(o)
	}
	c := &simMeter{Need: throttle.Need{Limit: l.Name, Key: key}}
	if l.Kind == throttle.Concurrency {
		if l.Lease == 0 {
			l.Lease = throttle.DefaultLease
		}
		c.lease = l.Lease.Microseconds()
		c.simulateHolders(now, 0, int64(l.Capacity), meanDuration)
		return c
	}
	c.define(&meter.Limit{
		Kind: string(l.Kind), N: l.Rate.N, Per: l.Rate.Per, Margin: l.Margin, Capacity: l.MaxCost(), Zone: l.Zone, Calendar: &meter.Calendar{},
	})
	return c
}

// readMeter returns the meter of a state that was read from Redis. See newMeter about meanDuration.
func readMeter(m waitdb.Meter, now int64, meanDuration time.Duration) *simMeter {
	c := &simMeter{
		Need:     throttle.Need{Limit: m.Limit, Key: m.Key},
		Reserved: int64(m.Reserved), Wanted: int64(m.Wanted - m.Reserved), CountedLanes: int64(m.Lanes),
	}
	state := m.State
	if state.Limit.Kind == meter.Concurrency {
		c.lease = state.Limit.Lease.Microseconds()
		c.simulateHolders(now, state.State[0].(int64), int64(m.Capacity), meanDuration)
	} else {
		c.Meter = meter.Read(state.Limit, state.State)
		c.define(state.Limit)
		c.Ends, c.Next = state.Ends, state.Next
	}
	c.Paused, c.Blocked = m.Paused, state.BlockedUntil
	switch {
	case c.UnknownDuration:
		c.idle = max(0, c.idle-c.Reserved)
	case c.Reserved > 0:
		meter.Charge(c.Meter, now, c.Reserved)
	}
	return c
}

func (c *simMeter) define(l *meter.Limit) {
	if c.Meter == nil {
		c.Meter = meter.New(l)
	}
	c.Meter.Define(l)
	c.limit, c.Capacity = l, int64(l.Capacity)
}

// simulateHolders replaces a concurrency limit by a rate: jobs of a mean duration of which at most
// n run at once are at most n in any period of that duration. If the duration is unknown, times are
// lower bounds.
func (c *simMeter) simulateHolders(now, held, slots int64, meanDuration time.Duration) {
	if c.UnknownDuration = meanDuration <= 0; c.UnknownDuration {
		c.Meter, c.limit = instantMeter{}, &meter.Limit{}
		c.Capacity, c.idle = slots, max(0, slots-held)
		return
	}
	c.Estimated = true
	period := max(time.Microsecond, meanDuration)
	kind := meter.SlidingLog
	if slots > 100_000 { // too many to keep a time for each
		kind = meter.SlidingWindow
	}
	c.define(&meter.Limit{Kind: kind, N: int(slots), Per: period, Capacity: int(slots)})
	held = min(held, slots)
	if kind == meter.SlidingWindow && held > 0 {
		c.Meter.Take(now, held)
		return
	}
	for i := range held { // spread over the period, so that they end one after the other
		ago, _ := meter.Span(held-1-i, held, period.Microseconds())
		c.Meter.Take(now-ago, 1)
	}
}

// ReadyAt returns the first time at which k permits are free, and far if it is unknown.
func (c *simMeter) ReadyAt(now, k int64) int64 {
	if c.Meter == nil {
		return now
	}
	if c.Paused {
		return far
	}
	if c.Ends > 0 && now >= c.Ends {
		c.Ends = 0
		c.define(c.Next)
	}
	return c.ReadyFrom(now, k, now)
}

// Take takes k permits, which ReadyAt allows. It reports whether they are free without the end of a
// job of unknown duration.
func (c *simMeter) Take(now, k int64) (certain bool) {
	if c.UnknownDuration {
		certain = k <= c.idle
		c.idle = max(0, c.idle-k)
		return certain
	}
	if c.Meter != nil && k > 0 {
		c.Meter.Take(now, k)
	}
	return true
}

// Exceeds reports whether k permits are more than the meter ever gives.
func (c *simMeter) Exceeds(k int64) bool { return c.Meter != nil && k > c.Capacity }

// IsPaused reports whether the limit is paused, so that no time and no lower bound is known.
func (c *simMeter) IsPaused() bool { return c.Meter != nil && c.Paused }

// isGradual reports whether permits return one by one, and not in windows.
func (c *simMeter) isGradual() bool {
	return c.limit.Kind == meter.Funnel || c.limit.Kind == meter.TokenBucket
}

// Refill returns the time in microseconds after which k used permits are free again.
func (c *simMeter) Refill(k int64) int64 {
	switch {
	case c.Meter == nil:
		return 1
	case c.lease > 0:
		return c.lease
	case c.isGradual():
		us, rest := meter.Span(k, int64(c.limit.N), c.limit.PeriodUS())
		return us + min(1, rest)
	}
	return c.limit.PeriodUS()
}

// PerRefill returns the number of jobs of k permits whose permits become free at the same time:
// those of a whole window, else 1.
func (c *simMeter) PerRefill(k int64) int64 {
	if c.Meter == nil || c.lease > 0 || c.isGradual() {
		return 1
	}
	return int64(c.limit.N) / max(1, k)
}
