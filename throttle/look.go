package throttle

import (
	"context"
	"time"
)

// Meter is how one key of a limit stands, for people who ask why jobs wait.
type Meter struct {
	Limit, Key string
	// Capacity is the most permits that can be taken at once, and Left how many
	// are there now, those that are reserved for called jobs among them.
	Capacity, Left int
	// Wanted is how many permits all want that wait or are called, and Reserved
	// how many of them are kept for called ones.
	Wanted, Reserved int
	// NextIn is how long until the next permit can be taken: an estimate unless Known,
	// as nobody knows when a running job gives its slot back, or a paused limit goes on.
	// When the last one that is wanted can be, a Forecast says.
	NextIn time.Duration
	Known  bool
	// Shut is whether the limit is paused or the key blocked; Paused, whether the
	// limit is; Blocked, how many of its keys are.
	Shut, Paused bool
	Blocked      int
	// PerSecond is how many permits come back in a second, in the long run. It is 0
	// of a concurrency limit, whose jobs give theirs back.
	PerSecond float64
}

// Used is how many permits are taken or reserved, of Capacity at most, whether or
// not the meter is shut.
func (m Meter) Used() int { return min(m.Capacity, m.Capacity-m.Left+m.Reserved) }

// Look says how meters stand, in the order of the needs, whose costs do not
// matter; where a limit does not exist Capacity is 0. It asks as no app, so limits
// that are not for all show too. Ask for a hundred at a time at most: Redis does
// nothing else meanwhile.
func (r *Redis) Look(ctx context.Context, needs ...Need) ([]Meter, error) {
	if len(needs) == 0 {
		return nil, nil
	}
	reply, err := r.runExtended(ctx, lookScript, appendMeters(nil, needs)...)
	if err != nil {
		return nil, err
	}
	meters := make([]Meter, len(needs))
	for i, n := range needs {
		meters[i] = readMeter(n, reply[1+i].([]any), reply[0].(int64))
	}
	return meters, nil
}

// readMeter reads the reply of lua/limits/look.lua for one meter. Moments that are past by
// now are no time off.
func readMeter(n Need, row []any, now int64) Meter {
	m := Meter{Limit: n.Limit, Key: n.Key}
	if len(row) == 0 {
		return m
	}
	number := func(i int) int64 { return row[i].(int64) }
	m.Left, m.Capacity = int(number(0)), int(number(1))
	m.NextIn = microseconds(max(0, number(2)-now))
	m.Wanted, m.Reserved = int(number(3)), int(number(4))
	m.Known, m.Shut, m.Paused, m.Blocked = number(5) == 1, number(6) == 1, number(7) == 1, int(number(8))
	if period := number(10); period > 0 {
		m.PerSecond = float64(number(9)) / microseconds(period).Seconds()
	}
	return m
}

// A Course is a meter as a forecast follows it: from how it stands on, with what happens
// to it by the clock alone. Moments are microseconds of Redis's clock. The zero value is of
// a limit that does not exist: a job comes at once, to learn that.
type Course struct {
	// Need is which meter it is; the cost means nothing.
	Need
	// Capacity is the most permits that can be taken at once.
	Capacity int64
	// Reserved is how many permits are kept for called jobs, Wanted how many all want that
	// wait, and Sharing how many lanes take turns there, as was counted last.
	Reserved, Wanted, Sharing int64
	// About is whether permits come back as jobs end, so that moments are estimates.
	About bool
	// Least is whether permits come back as jobs end, and it is not known how long these run.
	// Then jobs are taken to end at once, so moments are lower bounds.
	Least bool

	gate  // without a meter where there is no such limit
	own   *activeLimit
	lease int64 // of a concurrency limit, else 0
	idle  int64 // permits that are free without the end of any job, where Least
}

// unheld is a concurrency meter whose permits come back at once.
type unheld struct{ meter }

func (unheld) readyAt(now, _ int64) int64 { return now }

// NewCourse is the meter of a limit for one key that nobody has used. Runs is for how long
// a job holds its permits of a concurrency limit, 0 where nobody knows.
func NewCourse(l Limit, key string, now int64, runs time.Duration) *Course {
	if o, differs := l.Overrides[key]; differs {
		l = l.With(o)
	}
	c := &Course{Need: Need{Limit: l.Name, Key: key}}
	if l.Kind == Concurrency {
		c.lease = l.lease().Microseconds()
		c.hold(now, 0, int64(l.Capacity), runs)
		return c
	}
	r := &activeLimit{Limit: l}
	c.meter = newMeter(r)
	c.define(r)
	return c
}

func (c *Course) define(r *activeLimit) {
	c.meter.define(r)
	c.own, c.Capacity = r, int64(r.MaxCost())
}

// hold has a concurrency meter follow jobs that run for so long in the mean: at most n
// of them at once is at most n in any time of that length. If it is not known how long
// they run, moments are lower bounds.
func (c *Course) hold(now, held, slots int64, runs time.Duration) {
	if c.Least = runs <= 0; c.Least {
		c.meter, c.own = unheld{}, &activeLimit{Limit: Limit{Kind: Concurrency}}
		c.Capacity, c.idle = slots, max(0, slots-held)
		return
	}
	period := max(1, runs.Microseconds())
	c.About = true
	kind := SlidingLog
	if slots > maxLog {
		kind = SlidingWindow
	}
	r := &activeLimit{Limit: Limit{Kind: kind, Rate: Rate{int(slots), microseconds(period)}}}
	c.meter = newMeter(r)
	c.define(r)
	held = min(held, slots)
	if kind == SlidingWindow && held > 0 {
		c.meter.take(now, held)
		return
	}
	for i := range held { // they end one after the other
		ago, _ := span(held-1-i, held, period)
		c.meter.take(now-ago, 1)
	}
}

// ReadyAt is when k permits could be taken, and 1<<53, the last moment there is, where
// nobody knows.
func (c *Course) ReadyAt(now, k int64) int64 {
	if c.meter == nil {
		return now
	}
	if c.paused {
		return far
	}
	if c.ends > 0 && now >= c.ends {
		c.ends = 0
		c.define(c.next)
	}
	return c.readyAt(now, k, now)
}

// Take takes k permits, which ReadyAt allows. It reports whether they were free for certain:
// without the end of a job of unknown duration.
func (c *Course) Take(now, k int64) (certain bool) {
	if c.Least {
		certain = k <= c.idle
		c.idle = max(0, c.idle-k)
		return certain
	}
	if c.meter != nil && k > 0 {
		c.meter.take(now, k)
	}
	return true
}

// Never reports whether k permits are more than it ever gives.
func (c *Course) Never(k int64) bool { return c.meter != nil && k > c.Capacity }

// Shut reports whether the limit is paused or the key blocked.
func (c *Course) Shut(now int64) bool { return c.shut(now) }

// Unknown reports whether there is no moment at which permits come back, nor a lower bound.
func (c *Course) Unknown() bool { return c.meter != nil && c.paused }

// Refill is how long k permits take to come again once they are used.
func (c *Course) Refill(k int64) int64 {
	switch {
	case c.meter == nil:
		return 1
	case c.lease > 0:
		return c.lease
	case c.own.Kind == Funnel || c.own.Kind == TokenBucket:
		n := int64(c.own.Rate.N)
		us, rest := span(k, n, c.own.periodUS())
		return us + ceilDiv(rest, n)
	}
	return c.own.periodUS()
}

// Together is for how many jobs of k permits those come again at once: as many as a window
// gives, else one.
func (c *Course) Together(k int64) int64 {
	if c.meter == nil || c.lease > 0 || c.own.Kind == Funnel || c.own.Kind == TokenBucket {
		return 1
	}
	return int64(c.own.Rate.N) / max(1, k)
}

// Courses follows meters from how they stand, in the order of the needs; nil are those whose
// limit does not exist. Runs is as for NewCourse. Ask for a hundred at a time at most: Redis
// does nothing else meanwhile.
func (r *Redis) Courses(ctx context.Context, now int64, runs func(Need) time.Duration, needs ...Need) ([]*Course, error) {
	reply, err := r.run(ctx, courseScript, appendMeters(nil, needs)...).Slice()
	if err != nil {
		return nil, unavailable(err)
	}
	courses := make([]*Course, len(needs))
	for i, n := range needs {
		if row := reply[i+1].([]any); len(row) > 0 {
			courses[i] = readCourse(n, row, now, runs(n))
		}
	}
	return courses, nil
}

// readCourse reads a row of lua/limits/course.lua.
func readCourse(n Need, row []any, now int64, runs time.Duration) *Course {
	number := func(i int) int64 { return row[i].(int64) }
	state := row[17].([]any)
	limit := func(i int) *activeLimit {
		r := &activeLimit{Limit: Limit{Name: n.Limit, Kind: Kind(row[0].(string)), Rate: Rate{int(number(i)), microseconds(number(i + 1))}}, since: number(13)}
		switch r.Kind {
		case Funnel, TokenBucket:
			r.Capacity = int(number(i + 2))
		case FixedWindow:
			r.Rate.Per, r.Margin, r.Zone = microseconds(number(14)), microseconds(number(15)), row[16].(string)
		}
		return r
	}
	c := &Course{Need: n}
	if row[0].(string) == string(Concurrency) {
		c.lease = number(2)
		c.hold(now, state[0].(int64), number(3), runs)
	} else {
		r := limit(1)
		c.meter = readState(r, state)
		c.define(r)
		if c.ends = number(9); c.ends > 0 {
			c.next = limit(10)
			c.next.since = c.ends
		}
	}
	c.Reserved, c.Wanted, c.Sharing = number(4), number(5), number(6)
	c.paused, c.blocked = number(7) == 1, number(8)
	switch {
	case c.Least:
		c.idle = max(0, c.idle-c.Reserved)
	case c.Reserved > 0:
		charge(c.meter, now, c.Reserved)
	}
	return c
}
