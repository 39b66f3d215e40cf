package throttle

import (
	"strconv"
	"strings"
	"time"
)

// A course is a meter as a forecast follows it: from how it stands on, with what
// happens to it by the clock alone.
type course struct {
	Need // which meter it is; the cost means nothing
	// meter is nil where there is no such limit: a job comes at once, to learn that.
	meter
	kind                Kind
	n, period, capacity int64
	lease               int64 // of a concurrency limit

	paused  bool
	about   bool         // it comes back as jobs end, so its times are estimates
	blocked int64        // until when it is shut
	ends    int64        // when it goes by next; 0 if it does not
	next    *activeLimit // the limit as it is from then on

	reserved, wanted int64 // permits: of called jobs, and of all that wait
	sharing          int64 // lanes that take turns here, as was counted last
	lanes            int64 // that need it, of those that the forecast follows
	binds            bool  // jobs wait longest for it
	refused          int   // the batch of turns in which it refused one
}

// ids are limit|key, as names of lanes have it.
func (n Need) id() string { return n.Limit + "|" + n.Key }

// newCourse is the unused meter of a limit.
func newCourse(n Need, r *activeLimit) *course {
	c := &course{Need: n, kind: r.Kind}
	c.meter = newMeter(r)
	c.define(r)
	return c
}

func (c *course) define(r *activeLimit) {
	c.meter.define(r)
	c.n, c.period, c.capacity = int64(r.Rate.N), r.periodUS(), int64(r.MaxCost())
}

// hold has a concurrency meter follow jobs that run for so long in the mean: at most n
// of them at once is at most n in any time of that length. Where nobody knows how long
// they run, none ever ends.
func (c *course) hold(now, held, slots int64, runs time.Duration) {
	period := int64(far)
	if runs > 0 {
		period, c.about = max(1, runs.Microseconds()), true
	}
	c.n, c.period, c.capacity = slots, period, slots
	held = min(held, slots)
	if slots > maxLog {
		w := &slidingWindow{n: slots, period: period, width: ceilDiv(period, windowParts)}
		w.wasWidth = w.width
		c.meter = w
		if held > 0 {
			w.take(now, held)
		}
		return
	}
	l := &slidingLog{n: slots, period: period}
	for i := range held { // they end one after the other
		ago := int64(0)
		if runs > 0 {
			ago, _ = span(held-1-i, held, period)
		}
		l.times = append(l.times, now-ago)
	}
	c.meter = l
}

// readyAt is when k permits could be taken, and far where nobody knows.
func (c *course) readyAt(now, k int64) int64 {
	if c.meter == nil {
		return now
	}
	if c.paused {
		return far
	}
	c.advance(now)
	at := max(c.meter.readyAt(now, k), c.blocked)
	if c.ends > 0 && at >= c.ends {
		m := c.meter.clone()
		m.define(c.next)
		at = max(m.readyAt(c.ends, k), c.blocked)
	}
	return at
}

// advance has the meter count as it does by now.
func (c *course) advance(now int64) {
	if c.ends > 0 && now >= c.ends {
		c.ends = 0
		c.define(c.next)
	}
}

// worth is how long k permits take to come again once they are used.
func (c *course) worth(k int64) int64 {
	switch c.kind {
	case Concurrency:
		return c.lease
	case Funnel, TokenBucket:
		us, rest := span(k, c.n, c.period)
		return us + ceilDiv(rest, c.n)
	}
	return c.period
}

// readCourse reads a row of lua/lanes/forecast.lua.
func readCourse(n Need, row []any, now int64, runs time.Duration) *course {
	if len(row) == 0 {
		return &course{Need: n}
	}
	number := func(i int) int64 { return row[i].(int64) }
	state := row[17].([]any)
	limit := func(i int) *activeLimit {
		r := &activeLimit{Limit: Limit{Name: n.Limit, Kind: Kind(row[0].(string)), Rate: Rate{int(number(i)), time.Duration(number(i+1)) * time.Microsecond}}, since: number(13)}
		switch r.Kind {
		case Funnel, TokenBucket:
			r.Capacity = int(number(i + 2))
		case FixedWindow:
			r.Rate.Per = time.Duration(number(14)) * time.Microsecond
			r.Margin, r.Zone = time.Duration(number(15))*time.Microsecond, row[16].(string)
		}
		return r
	}
	c := &course{Need: n, kind: Kind(row[0].(string))}
	if c.kind == Concurrency {
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
	c.reserved, c.wanted, c.sharing = number(4), number(5), number(6)
	c.paused, c.blocked = number(7) == 1, number(8)
	if c.reserved > 0 {
		c.meter.charge(now, c.reserved)
	}
	return c
}

// readState is a meter of what Redis keeps of it, under the limit that wrote it.
func readState(r *activeLimit, state []any) meter {
	var words []int64
	for _, part := range state {
		switch part := part.(type) {
		case int64:
			words = append(words, part)
		case string:
			for word := range strings.FieldsSeq(part) {
				n, _ := strconv.ParseInt(word, 10, 64)
				words = append(words, n)
			}
		}
	}
	switch r.Kind {
	case FixedWindow:
		m := &fixedWindow{limit: r}
		if len(words) >= 2 {
			m.last, m.count = words[0], words[1]
		}
		return m
	case SlidingLog:
		m := &slidingLog{}
		for i := 0; i+1 < len(words); i += 2 {
			for range words[i+1] {
				m.times = append(m.times, words[i])
			}
		}
		return m
	case SlidingWindow:
		m := &slidingWindow{}
		if len(words) > 0 {
			m.wasWidth = words[0]
		}
		for i := 1; i+1 < len(words); i += 2 {
			m.parts = append(m.parts, part{words[i], words[i+1]})
		}
		return m
	}
	m := &gcra{n: int64(r.Rate.N), period: r.periodUS()}
	if len(words) >= 4 {
		m.tat, m.rest, m.n, m.period = words[0], words[1], words[2], words[3]
	}
	return m
}

// unknown reports whether nobody can say when permits come back.
func (c *course) unknown() bool { return c.meter != nil && (c.paused || c.period >= far) }
