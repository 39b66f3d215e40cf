package fairqueue

import "slices"

// hold keeps permits of a meter for a lane that waits at another, for a time.
type hold struct {
	lane *lane
	// cost is what a turn takes, and turns how many it is for.
	cost, turns, from, till int64
	// begun: others were told to leave them.
	begun bool
}

// next is when there is news of it.
func (h hold) next() int64 {
	if h.begun {
		return h.till
	}
	return h.from
}

// slack is for how long after its expected time a lane is still waited for, and
// how far ahead of their time jobs are called.
const slack = 40_000

// held is how many permits of a meter lanes hold whose turn comes before: to them a lane
// yields.
func (c *Core) held(m *meter, l *lane, now int64) (sum int64) {
	for _, h := range m.holds {
		if h.lane != l && h.from <= now && h.till > now && (c.before(m, h.lane, l) || c.without(yielding)) {
			sum += h.cost * h.turns
		}
	}
	return sum
}

// hold keeps what a lane needs of m, which is ready, while it waits at x.
func (c *Core) hold(l *lane, m *meter, x wait, now int64) {
	own := l.need(m)
	till, worth := l.holdTill(own, x, now)
	if !worth || c.without(holding) || x.behind && c.without(holdingBehind) {
		return
	}
	turns := int64(1)
	if h := own.heldBy(l); h != nil && h.turns > 1 {
		turns, till = h.turns, max(h.till, till)
	}
	c.release(m, l)
	c.place(own, hold{l, own.cost, turns, now, till, true})
}

func (c *Core) place(n need, h hold) {
	n.holds = append(n.holds, h)
	h.lane.holds++
	c.touch(n.meter)
	c.wake(n.meter, h.next())
}

// holdTill returns until when a lane may hold what it needs of a meter while it
// waits at x, and whether it may. What it holds must take at least as long to
// come again as what it waits for, so that no two hold for each other; and it
// must not wait for longer than that.
func (l *lane) holdTill(own need, x wait, now int64) (till int64, worth bool) {
	its := l.need(x.meter)
	at, comes, itsComes := x.at, own.comes(), its.comes()
	if x.unknown {
		at = now + itsComes
	}
	slower := comes > itsComes || comes == itsComes && own.name >= x.name
	worth = l.looked && slower && !x.blocked && at-now <= comes
	if x.behind {
		return now + comes, worth
	}
	return at + slack, worth
}

// keep has a lane hold what it holds until x, where it is the first, is ready:
// that can be later than was known when it came there.
func (c *Core) keep(l *lane, x wait, now int64) {
	for _, n := range l.needs {
		if h := n.heldBy(l); h != nil && n.meter != x.meter {
			if till, worth := l.holdTill(n, x, now); worth {
				h.till = max(h.till, till)
			}
		}
	}
}

// meet has a lane that is the first at x hold its other meters from shortly
// before x is ready, where others wait: else of two meters that get ready one
// after the other each would always give to those that need only one.
func (c *Core) meet(l *lane, x wait, now int64) {
	if !l.looked || x.behind || x.blocked || x.unknown || c.without(meeting) {
		return
	}
	for _, n := range l.needs {
		if n.meter != x.meter && n.waiting > 0 && !n.holdsFor(l) && x.at-now <= n.comes() && c.ready(n.meter, l, now).at <= x.at {
			c.release(n.meter, l)
			c.place(n, hold{l, n.cost, 1, x.at - min(slack, n.comes()), x.at + slack, false})
		}
	}
}

// heldBy returns what a lane holds of a meter, nil if nothing.
func (m *meter) heldBy(l *lane) *hold {
	for i := range m.holds {
		if m.holds[i].lane == l {
			return &m.holds[i]
		}
	}
	return nil
}

// letGo gives up all that a lane holds.
func (c *Core) letGo(l *lane) {
	for i := 0; i < len(l.needs) && l.holds > 0; i++ {
		if c.release(l.needs[i].meter, l) {
			c.wake(l.needs[i].meter, 0)
		}
	}
}

// release gives up what a lane holds of a meter, and reports whether it did.
func (c *Core) release(m *meter, l *lane) bool {
	return c.unhold(m, func(h hold) bool { return h.lane == l })
}

// renew begins what is to be held of a meter from now on, and gives up what was
// held for long enough.
func (c *Core) renew(m *meter, now int64) {
	c.unhold(m, func(h hold) bool { return h.till <= now })
	for i := range m.holds {
		h := &m.holds[i]
		if !h.begun && h.from <= now {
			h.begun = true
			c.touch(m)
		}
		if most := h.most(m, now); h.turns > most {
			if h.turns = most; most == 1 {
				h.till = min(h.till, now+h.lane.pace(m, now)+slack)
			}
		}
	}
}

func (c *Core) unhold(m *meter, which func(hold) bool) bool {
	before := len(m.holds)
	m.holds = slices.DeleteFunc(m.holds, func(h hold) bool {
		gone := which(h)
		if gone {
			h.lane.holds--
		}
		return gone
	})
	if len(m.holds) == before {
		return false
	}
	c.touch(m)
	return true
}

// nextHold is when a hold of a meter begins or ends.
func (m *meter) nextHold(now int64) int64 {
	next := never
	for _, h := range m.holds {
		next = min(next, h.next())
		if more := m.more(now); more < never && h.turns > 1+h.lane.need(m).extra {
			next = min(next, max(now, more-(h.turns-1)*h.lane.pace(m, now)/2)+1)
		}
	}
	return next
}

// holding reports whether anything is held of a meter by now.
func (m *meter) holding() bool {
	return slices.ContainsFunc(m.holds, func(h hold) bool { return h.begun && h.turns > 0 })
}

// need returns what a lane needs of a meter.
func (l *lane) need(m *meter) need { return l.needs[l.index(m)] }

// index says which of its needs that is.
func (l *lane) index(m *meter) int {
	return slices.IndexFunc(l.needs, func(n need) bool { return n.meter == m })
}
