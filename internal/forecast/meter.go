package forecast

import (
	"time"

	"github.com/headgate/headgate/internal/meter"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// simMeter is a meter in a simulation: how it stands, and what happens to it by the clock alone.
// Without a Meter there is no such limit: a job comes at once, to learn that.
type simMeter struct {
	throttle.Need // which meter it is; the cost means nothing
	meter.Gate
	limit *meter.Limit // what the key counts by
	// Reserved is how many permits are reserved for granted jobs, Wanted how many all jobs want
	// that wait, and Lanes how many lanes take turns there, as counted last.
	Capacity, Reserved, Wanted, CountedLanes int64
	// Estimated is whether permits come back as jobs end, so that times are estimates. AtLeast is
	// whether it is unknown how long these jobs run: then jobs are taken to end at once, so that
	// times are lower bounds.
	Estimated, UnknownDuration bool
	lease                      int64 // of a concurrency limit, else 0
	idle                       int64 // permits that are free without the end of any job, if AtLeast

	lanes          int64 // that need it, of those that the forecast follows
	isBottleneck   bool  // jobs wait longest for it
	hasLowerBounds bool  // jobs need it whose times are lower bounds
	refusedIn      int   // the batch of turns in which it refused one
}

// far is when something happens if that is unknown.
const far = meter.MaxTime

// unheld is a concurrency meter whose permits come back at once.
type instantMeter struct{ meter.Meter }

func (instantMeter) ReadyAt(now, _ int64) int64 { return now }

// newMeter returns the unused meter of a limit for one key. Runs is for how long a job holds its
// permits of a concurrency limit, 0 if that is unknown.
func newMeter(l throttle.Limit, key string, now int64, runs time.Duration) *simMeter {
	if o, differs := l.Overrides[key]; differs {
		l = l.With(o)
	}
	c := &simMeter{Need: throttle.Need{Limit: l.Name, Key: key}}
	if l.Kind == throttle.Concurrency {
		if l.Lease == 0 {
			l.Lease = throttle.DefaultLease
		}
		c.lease = l.Lease.Microseconds()
		c.simulateHolders(now, 0, int64(l.Capacity), runs)
		return c
	}
	c.define(&meter.Limit{
		Kind: string(l.Kind), N: l.Rate.N, Per: l.Rate.Per, Margin: l.Margin, Capacity: l.MaxCost(), Zone: l.Zone, Calendar: &meter.Calendar{},
	})
	return c
}

// readMeter returns the meter that a look has found.
func readMeter(m waitdb.Meter, now int64, runs time.Duration) *simMeter {
	c := &simMeter{
		Need:     throttle.Need{Limit: m.Limit, Key: m.Key},
		Reserved: int64(m.Reserved), Wanted: int64(m.Wanted - m.Reserved), CountedLanes: int64(m.Lanes),
	}
	state := m.State
	if state.Limit.Kind == meter.Concurrency {
		c.lease = state.Limit.Lease.Microseconds()
		c.simulateHolders(now, state.State[0].(int64), int64(m.Capacity), runs)
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

// simulateHolders makes a concurrency meter follow jobs that run for so long in the mean: at most n
// of them at once is at most n in any time of that length. If it is unknown how long they run,
// times are lower bounds.
func (c *simMeter) simulateHolders(now, held, slots int64, runs time.Duration) {
	if c.UnknownDuration = runs <= 0; c.UnknownDuration {
		c.Meter, c.limit = instantMeter{}, &meter.Limit{}
		c.Capacity, c.idle = slots, max(0, slots-held)
		return
	}
	c.Estimated = true
	period := max(time.Microsecond, runs)
	kind := meter.SlidingLog
	if slots > 100_000 { // too many times to keep
		kind = meter.SlidingWindow
	}
	c.define(&meter.Limit{Kind: kind, N: int(slots), Per: period, Capacity: int(slots)})
	held = min(held, slots)
	if kind == meter.SlidingWindow && held > 0 {
		c.Meter.Take(now, held)
		return
	}
	for i := range held { // they end one after the other
		ago, _ := meter.Span(held-1-i, held, period.Microseconds())
		c.Meter.Take(now-ago, 1)
	}
}

// ReadyAt returns when k permits could be taken, and far if that is unknown.
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

// Take takes k permits, which ReadyAt allows. It reports whether they were free for certain:
// without the end of a job of unknown duration.
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

// Never reports whether k permits are more than it ever gives.
func (c *simMeter) Exceeds(k int64) bool { return c.Meter != nil && k > c.Capacity }

// Unknown reports whether there is no time at which permits come back, nor a lower bound.
func (c *simMeter) IsPaused() bool { return c.Meter != nil && c.Paused }

// leaks reports whether permits come back one by one, and not in windows.
func (c *simMeter) isGradual() bool {
	return c.limit.Kind == meter.Funnel || c.limit.Kind == meter.TokenBucket
}

// Refill returns how long k permits take to come again once they are used.
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

// PerRefill returns for how many jobs of k permits those come again at once: as many as a window
// gives, else one.
func (c *simMeter) PerRefill(k int64) int64 {
	if c.Meter == nil || c.lease > 0 || c.isGradual() {
		return 1
	}
	return int64(c.limit.N) / max(1, k)
}
