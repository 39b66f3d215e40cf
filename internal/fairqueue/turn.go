package fairqueue

// try is a turn without a reply.
type pendingTurn struct {
	lane *lane
	from *meter
	// key, needs and paid are the lane's before the turn. It gets them back if it is not granted.
	key   int64
	needs []need
	paid  uint64
	// extraTurns are turns that other lanes had before this one, to hold one more.
	extraTurns []extraTurn
	Turn
}

const (
	// maxAdvance is how far before their time jobs are granted, and for how long after its expected
	// time a lane is still waited for.
	maxAdvance = 40_000
	// travelTime is about how long a granted job takes to come.
	travelTime = 5_000
	// minAdvance is how far ahead a job is granted if the meter gives few permits at once: about as
	// long as a job takes to come. One that comes sooner begins when its permit exists.
	minAdvance = 1_500
	// clockSkew is when a turn is tried again, without advance, that was refused although every
	// meter was said to be ready: the clocks differ.
	clockSkew = 1_000
)

// wait is the meter at which a lane must wait, and until when: behind an older lane, or because the
// meter is not ready.
type wait struct {
	*meter
	bound
	behind bool
}

// Turns returns at most n turns to try now, in this order, chosen as if each of them were granted.
// Tried takes the replies.
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

// serve gives the lanes that wait at a meter their turns. A lane stays where it is until its turn
// has come and it cannot be granted; then it waits, with its key, where it must.
func (c *Core) serve(m *meter, now int64) {
	c.updateHolds(m, now)
	m.observeFreed(now)
	for m.left > 0 && len(c.pendingTurns) < c.maxPendingTurns {
		l := m.first()
		if l == nil {
			c.sleep(m, never, now)
			return
		}
		if !c.hasWorker(now, l) {
			c.awaitSlot(now, l)
			continue
		}
		ready := c.ready(m, l, now)
		early := ready.at > m.horizon(now)
		if early && now < m.trustedUntil() {
			c.prepareHolds(l, wait{m, ready, false}, now)
			c.sleep(m, min(ready.at-m.leadTime(now), m.trustedUntil()), now)
			return
		}
		if !early {
			if c.holdMore(m, l, now) {
				continue
			}
			c.pay(l, l.index(m))
		}
		x := c.blocker(l, m, now)
		if x.meter != nil && l.pendingTurns > 0 {
			return // the lane's key is not known before the reply
		}
		if x.behind || x.meter != nil && l.read && !early && l.needs[l.index(m)].isSure(c.held(m, l, now)) {
			if !early {
				c.hold(l, m, x, now)
			}
			c.prepareHolds(l, x, now)
			c.move(now, l, x)
			continue
		}
		c.try(l, m, now)
		if early {
			m.trustTime = min(2*m.trustTime, maxTrust)
			m.left = 0
		}
	}
}

// isSure reports whether what is known of the meter is what it said to this need, and no permit was
// taken since.
func (n *need) isSure(held int64) bool {
	return n.askedTotal == held+n.cost && n.askedAt == n.meter.grants
}

// sleep has a meter be served again at a time, or when a hold begins or ends.
func (c *Core) sleep(m *meter, at, now int64) {
	m.extraTurns = nil
	if at = min(at, m.nextHold(now)); at < never {
		c.wake(m, at)
	}
}

// ready returns when a meter can be ready for a lane.
func (c *Core) ready(m *meter, l *lane, now int64) bound {
	return m.bounds.boundOf(c.held(m, l, now) + l.need(m).cost)
}

// horizon is until when a permit must exist for its job to be granted now. Where a lane needs
// several meters no job is granted in advance: that would keep the permits of one meter while it
// waits for another's.
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

// limitAdvance notes how far in advance a job may be granted. For some time others at the meter are
// granted no further.
func (m *meter) limitAdvance(now, advance int64) {
	if advance >= maxAdvance {
		return
	}
	if m.nearUntil > now {
		advance = min(advance, m.nearAdvance)
	}
	m.nearUntil, m.nearAdvance = now+maxTrust, advance
}

// leadTime is how long before its permits exist a job is granted that begins when they do, because
// it comes first. Of several that are granted together that is the first, so it is a part of the
// horizon.
func (m *meter) leadTime(now int64) int64 {
	if !m.takesEarly {
		return 0
	}
	advance := m.horizon(now) - now
	return min(travelTime, advance, max(minAdvance, advance/4))
}

// blocker returns what a lane whose turn has come on m must wait for elsewhere; no meter if it can
// be granted.
func (c *Core) blocker(l *lane, m *meter, now int64) (w wait) {
	for i, n := range l.needs {
		if n.meter == m {
			continue
		}
		f := n.first()
		behind := f != nil && c.before(n.meter, f, l) && !c.without(notPassing)
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

// move has a lane wait elsewhere, with its key.
func (c *Core) move(now int64, l *lane, x wait) {
	key := l.lastTurn
	if c.without(keptKeys) {
		key = c.nextNumber()
	}
	c.detach(l)
	c.attach(l, x.meter, key)
	c.wake(x.meter, min(x.at, x.meter.trustedUntil()))
}

// try gives a lane a turn. As if it were granted, the lane goes behind the others.
func (c *Core) try(l *lane, m *meter, now int64) {
	for i := range l.needs {
		c.pay(l, i)
	}
	t := pendingTurn{lane: l, from: m, extraTurns: m.extraTurns, key: l.lastTurn, needs: l.needs, paid: l.paid, Turn: Turn{Lane: l.name, Advance: m.horizon(now) - now}}
	for i, n := range l.needs {
		if held := c.held(n.meter, l, now); held > 0 {
			if t.Held == nil {
				t.Held = make([]int64, len(l.needs))
			}
			t.Held[i] = held
		}
	}
	c.pendingTurns = append(c.pendingTurns, t)
	if !m.tried {
		m.tried = true
		c.served = append(c.served, m)
	}
	l.pendingTurns++
	l.queue.pendingTurns++
	m.left--
	m.extraTurns = nil
	l.lastTurn, l.paid = c.nextNumber(), 0
	c.enqueue(l)
}
