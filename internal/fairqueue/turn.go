package fairqueue

import "slices"

// pendingTurn is a turn that was sent to Redis and has no result yet.
type pendingTurn struct {
	lane *lane
	from *meter
	// key is the lane's lastTurn before the turn, and paid has the number of turns that it had paid
	// for at each meter. They are restored if the turn is not granted.
	key   int64
	paid  []int64
	needs []need // l.needs at the turn, to see later whether the lane has left its meters
	// missed lists the other lanes that were charged for a missed turn just before this turn.
	missed []*lane
	Turn
}

const (
	// maxAdvance is the longest time before its permits are available at which a job is granted. It
	// is also how long after the expected ready time a hold is kept.
	maxAdvance = 40_000
	// travelTime is the typical time from a promotion until the worker asks for the permits.
	travelTime = 5_000
	// At a meter that can reserve only few permits, jobs may be granted at least minAdvance early:
	// about the time in which a promoted job reaches its worker. A job that arrives sooner waits
	// for its permit.
	minAdvance = 1_500
	// clockSkew is the delay before a lane gets another turn, if Redis refused its turn although
	// every meter seemed ready.
	clockSkew = 1_000
)

// wait says at which meter and until when a lane must wait: behind a lane that has an earlier turn
// there, or because the meter has too few free permits.
type wait struct {
	*meter
	bound
	behind bool
}

// Turns returns up to n turns to try now, in order. Each is chosen as if the turns before it were
// granted. Pass the results to ApplyResults.
func (c *Core) Turns(now int64, n int) []Turn {
	if len(c.pendingTurns) > 0 {
		c.ApplyResults(now, nil)
	}
	c.maxPendingTurns = n
	c.reopenDue(now)
	for len(c.pendingTurns) < n && c.due.next() <= now {
		m := c.due[0].value
		c.due.remove(&m.due)
		c.serve(m, now)
	}
	turns := make([]Turn, len(c.pendingTurns))
	for i, t := range c.pendingTurns {
		turns[i] = t.Turn
	}
	return turns
}

// serve gives turns to the lanes that wait at a meter. A lane that has its turn but is blocked
// by another meter moves to that meter and keeps its position.
func (c *Core) serve(m *meter, now int64) {
	c.removeHolds(m, func(h hold) bool { return h.until <= now })
	if len(m.holds) > 0 {
		c.touched[m] = true // a hold may have begun
	}
	for m.left > 0 && len(c.pendingTurns) < c.maxPendingTurns {
		l := m.first()
		if l == nil {
			c.sleep(m, never, now)
			return
		}
		if !c.hasWorker(now, l) {
			c.waitForWorker(now, l)
			continue
		}
		ready := c.ready(m, l, now)
		early := ready.at > m.horizon(now)
		if early && now < c.trustedUntil(m) {
			c.prepareHolds(l, wait{m, ready, false}, now)
			c.sleep(m, min(ready.at-m.leadTime(now), c.trustedUntil(m)), now)
			return
		}
		if !early {
			if c.payMissed(m, l, now) {
				continue
			}
			c.pay(l, l.index(m))
		}
		x := c.blocker(l, m, now)
		if x.meter != nil && l.pendingTurns > 0 {
			return // the lane's position depends on the pending turn
		}
		if x.behind || x.meter != nil && l.read && !early {
			if !early {
				c.hold(l, m, x, now)
			}
			c.prepareHolds(l, x, now)
			c.move(l, x)
			continue
		}
		c.try(l, m, now)
		if early {
			m.trustTime = min(2*m.trustTime, maxTrust)
			m.left = 0
		}
	}
}

// sleep schedules the next service of a meter at a time, or earlier when a hold starts or ends.
func (c *Core) sleep(m *meter, at, now int64) {
	m.missed = nil
	if at = min(at, m.nextHold(now)); at < never {
		c.wake(m, at)
	}
}

// ready returns the time from which the meter can give the lane's permits, beyond those held for
// other lanes. The zero bound means now.
func (c *Core) ready(m *meter, l *lane, now int64) bound {
	return m.bounds.boundOf(c.held(m, l, now) + l.need(m).cost)
}

// horizon returns the latest time at which permits that are granted now may become available. It
// returns now if a lane of the meter needs several meters. Without that, a grant would reserve
// permits of one meter while it waits for another.
func (m *meter) horizon(now int64) int64 {
	switch {
	case m.multiLimit > 0 || m.noAdvanceUntil > now:
		return now
	case m.nearUntil <= now:
		return now + maxAdvance
	case m.takesEarly:
		return now + max(minAdvance, m.nearAdvance)
	}
	return now
}

// limitAdvance records the maximum advance of a job. For the next maxTrust, that maximum applies to
// all lanes of the meter.
func (m *meter) limitAdvance(now, advance int64) {
	if advance >= maxAdvance {
		return
	}
	if m.nearUntil > now {
		advance = min(advance, m.nearAdvance)
	}
	m.nearUntil, m.nearAdvance = now+maxTrust, advance
}

// leadTime returns how long before its permits are available a job is granted, in microseconds. It
// is 0 if the worker must not take the permits early. A job that arrives early starts when they are
// available. If several jobs are granted together, leadTime applies to the first, so it is only a
// part of the horizon.
func (m *meter) leadTime(now int64) int64 {
	if !m.takesEarly {
		return 0
	}
	advance := m.horizon(now) - now
	return min(travelTime, advance, max(minAdvance, advance/4))
}

// blocker returns the other meter that a lane that has its turn at m must wait for, or an empty
// wait if it can be granted. It also charges the lane at meters where it has its turn.
func (c *Core) blocker(l *lane, m *meter, now int64) (w wait) {
	for i, n := range l.needs {
		if n.meter == m {
			continue
		}
		f := n.first()
		behind := f != nil && c.before(n.meter, f, l) && !c.isDisabled(noOvertaking)
		if !behind {
			c.pay(l, i)
		}
		b := c.ready(n.meter, l, now)
		b.at = max(b.at, now)
		if (behind || b.at > now) && (w.meter == nil || behind && !w.behind || behind == w.behind && b.at > w.at) {
			w = wait{n.meter, b, behind}
		}
	}
	return w
}

// move makes a lane wait at another meter and keeps its position.
func (c *Core) move(l *lane, x wait) {
	key := l.lastTurn
	if c.isDisabled(keepPosition) {
		key = c.nextNumber()
	}
	c.detach(l)
	c.attach(l, x.meter, key)
	c.wake(x.meter, min(x.at, c.trustedUntil(x.meter)))
}

// try adds a pending turn for the lane and moves the lane behind the others, as if the turn were
// granted.
func (c *Core) try(l *lane, m *meter, now int64) {
	for i := range l.needs {
		c.pay(l, i)
	}
	t := pendingTurn{lane: l, from: m, key: l.lastTurn, needs: l.needs, missed: m.missed, Turn: Turn{Lane: l.name, Advance: m.horizon(now) - now, Held: make([]int64, len(l.needs))}}
	for i, n := range l.needs {
		t.Held[i] = c.held(n.meter, l, now)
	}
	if !slices.Contains(c.served, m) {
		c.served = append(c.served, m)
	}
	l.pendingTurns++
	l.queue.pendingTurns++
	m.left--
	for i := range l.needs {
		t.paid = append(t.paid, l.needs[i].paid)
		l.needs[i].paid--
	}
	c.pendingTurns = append(c.pendingTurns, t)
	m.missed = nil
	l.lastTurn = c.nextNumber()
	c.enqueue(l)
}
