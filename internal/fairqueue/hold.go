package fairqueue

import "slices"

// hold keeps permits of a meter for a lane that waits at another meter, for a time.
type hold struct {
	lane *lane
	// cost is what a turn takes, and turns how many turns it is for.
	cost, turns, from, until int64
	begun                    bool // others were told to leave them
}

// held returns how many permits of a meter are held by lanes whose turn comes before l's.
func (c *Core) held(m *meter, l *lane, now int64) (sum int64) {
	for _, h := range m.holds {
		if h.lane != l && h.from <= now && h.until > now && (c.before(m, h.lane, l) || c.without(yielding)) {
			sum += h.cost * h.turns
		}
	}
	return sum
}

// hold keeps what a lane needs of m, which is ready, while it waits at x.
func (c *Core) hold(l *lane, m *meter, x wait, now int64) {
	own := l.need(m)
	until, worth := l.holdUntil(own, x, now)
	if !worth || c.without(holding) || x.behind && c.without(holdingBehind) {
		return
	}
	turns := int64(1)
	if h := own.heldBy(l); h != nil && h.turns > 1 {
		turns, until = h.turns, max(h.until, until)
	}
	c.release(m, l)
	c.addHold(own, hold{l, own.cost, turns, now, until, true})
}

func (c *Core) addHold(n need, h hold) {
	n.holds = append(n.holds, h)
	h.lane.heldMeters++
	c.touch(n.meter)
	if h.begun {
		c.wake(n.meter, h.until)
	} else {
		c.wake(n.meter, h.from)
	}
}

// holdUntil returns until when a lane may hold what it needs of a meter while it waits at x, and
// whether it may. What it holds must take at least as long to come back as what it waits for, so
// that no two lanes hold for each other; and it must not wait for longer than that.
func (l *lane) holdUntil(own need, x wait, now int64) (until int64, worth bool) {
	its := l.need(x.meter)
	at, returnTime, itsReturnTime := x.at, own.returnTime(), its.returnTime()
	if x.unknown {
		at = now + itsReturnTime
	}
	slower := returnTime > itsReturnTime || returnTime == itsReturnTime && own.name >= x.name
	worth = l.read && slower && !x.blocked && at-now <= returnTime
	if x.behind {
		return now + returnTime, worth
	}
	return at + maxAdvance, worth
}

// prepareHolds prepares a lane's other meters for the time when x, where the lane is the first, is
// ready. It extends what the lane holds, since x can be ready later than was known before. Where
// others wait it holds the other meters from shortly before: else of two meters that get ready one
// after the other each would always give to lanes that need only one.
func (c *Core) prepareHolds(l *lane, x wait, now int64) {
	for _, n := range l.needs {
		if n.meter == x.meter {
			continue
		}
		h := n.heldBy(l)
		if h != nil {
			if until, worth := l.holdUntil(n, x, now); worth {
				h.until = max(h.until, until)
			}
		}
		meets := l.read && !x.behind && !x.blocked && !x.unknown && !c.without(meeting)
		if meets && n.waiting > 0 && (h == nil || h.turns == 0) && x.at-now <= n.returnTime() && c.ready(n.meter, l, now).at <= x.at {
			c.release(n.meter, l)
			c.addHold(n, hold{l, n.cost, 1, x.at - min(maxAdvance, n.returnTime()), x.at + maxAdvance, false})
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

// releaseAll gives up all that a lane holds.
func (c *Core) releaseAll(l *lane) {
	for i := 0; i < len(l.needs) && l.heldMeters > 0; i++ {
		if c.release(l.needs[i].meter, l) {
			c.wake(l.needs[i].meter, 0)
		}
	}
}

// release gives up what a lane holds of a meter, and reports whether it did.
func (c *Core) release(m *meter, l *lane) bool {
	return c.removeHolds(m, func(h hold) bool { return h.lane == l })
}

func (c *Core) removeHolds(m *meter, which func(hold) bool) bool {
	before := len(m.holds)
	m.holds = slices.DeleteFunc(m.holds, func(h hold) bool {
		gone := which(h)
		if gone {
			h.lane.heldMeters--
		}
		return gone
	})
	if len(m.holds) == before {
		return false
	}
	c.touch(m)
	return true
}

// updateHolds begins what is to be held of a meter from now on, and gives up what was held for long
// enough, or for more turns than its lane can use.
func (c *Core) updateHolds(m *meter, now int64) {
	c.removeHolds(m, func(h hold) bool { return h.until <= now })
	for i := range m.holds {
		h := &m.holds[i]
		if !h.begun && h.from <= now {
			h.begun = true
			c.touch(m)
		}
		if most := h.usefulTurns(m, now); h.turns > most {
			if h.turns = most; most == 1 {
				h.until = min(h.until, now+h.lane.turnInterval(m)+maxAdvance)
			}
		}
	}
}

// nextHold returns when a hold of a meter begins or ends, or has more turns than are useful.
func (m *meter) nextHold(now int64) int64 {
	next := never
	for _, h := range m.holds {
		if h.begun {
			next = min(next, h.until)
		} else {
			next = min(next, h.from)
		}
		if more := m.nextMore(now); more < never && h.turns > 1 {
			next = min(next, max(now, more-(h.turns-1)*h.lane.turnInterval(m)/spare)+1)
		}
	}
	return next
}

// need returns what a lane needs of a meter, and index which of its needs that is.
func (l *lane) need(m *meter) need { return l.needs[l.index(m)] }

func (l *lane) index(m *meter) int {
	return slices.IndexFunc(l.needs, func(n need) bool { return n.meter == m })
}
