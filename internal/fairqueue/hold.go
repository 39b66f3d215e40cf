package fairqueue

import "slices"

// A lane that waits at a fast meter holds permits of its slower meters. Otherwise lanes that need
// only a slower meter would take all of its permits meanwhile. The permits of a window return all
// at once. So a lane may hold permits of a window for several turns: for as many as it misses while
// other lanes have theirs. Otherwise a lane that also needs another limit would get one turn a
// window.

// hold records permits of a meter that are kept back for a lane which waits at another meter.
type hold struct {
	lane        *lane
	cost, turns int64 // of one turn; number of turns
	from, until int64 // times
	hasBegun    bool  // from has passed, so Sharing counts the hold
}

// held returns the number of permits of a meter that are held by lanes whose turn is before l's.
func (c *Core) held(m *meter, l *lane, now int64) (sum int64) {
	for _, h := range m.holds {
		if h.lane != l && h.from <= now && h.until > now && (c.before(m, h.lane, l) || c.isDisabled(yielding)) {
			sum += h.cost * h.turns
		}
	}
	return sum
}

// hold makes a lane that waits at x hold its permits of m, which is ready.
func (c *Core) hold(l *lane, m *meter, x wait, now int64) {
	own := l.need(m)
	until, useful := l.holdUntil(own, x, now)
	if !useful || c.isDisabled(holding) || x.behind && c.isDisabled(holdingBehind) {
		return
	}
	turns := int64(1)
	if h := own.heldBy(l); h != nil && h.turns > 1 {
		turns, until = h.turns, max(h.until, until)
	}
	c.setHold(own, hold{l, own.cost, turns, now, until, true})
}

// setHold replaces the hold of a lane at a meter.
func (c *Core) setHold(n need, h hold) {
	c.release(n.meter, h.lane)
	n.holds = append(n.holds, h)
	c.touch(n.meter)
	c.wake(n.meter, h.next())
}

// next returns the next time at which the hold begins or ends.
func (h *hold) next() int64 {
	if h.hasBegun {
		return h.until
	}
	return h.from
}

// holdUntil returns the time until which a lane that waits at x may hold its permits of another
// meter, and whether it may. The held permits must take at least as long to return as the permits
// of x, so that no two lanes hold what the other needs. x must be ready before the held permits
// would return.
func (l *lane) holdUntil(own need, x wait, now int64) (until int64, useful bool) {
	other := l.need(x.meter)
	at, returnTime, otherReturnTime := x.at, own.returnTime(), other.returnTime()
	if x.unknown {
		at = now + otherReturnTime
	}
	isSlower := returnTime > otherReturnTime || returnTime == otherReturnTime && own.name >= x.name
	useful = l.read && isSlower && !x.blocked && at-now <= returnTime
	if x.behind {
		return now + returnTime, useful
	}
	return at + maxAdvance, useful
}

// prepareHolds prepares the other meters of a lane that is first at x for the time when x is ready.
// It extends the lane's holds, because x may be ready later than was known. If other lanes wait at
// another meter, the lane holds permits there from shortly before that time on. Otherwise two
// meters that get ready one after the other would always serve lanes that need only one of them.
func (c *Core) prepareHolds(l *lane, x wait, now int64) {
	for _, n := range l.needs {
		if n.meter == x.meter {
			continue
		}
		h := n.heldBy(l)
		if h != nil {
			if until, useful := l.holdUntil(n, x, now); useful {
				h.until = max(h.until, until)
			}
		}
		meets := l.read && !x.behind && !x.blocked && !x.unknown && !c.isDisabled(meeting)
		if meets && n.waiting > 0 && (h == nil || h.turns == 0) && x.at-now <= n.returnTime() && c.ready(n.meter, l, now).at <= x.at {
			c.setHold(n, hold{l, n.cost, 1, x.at - min(maxAdvance, n.returnTime()), x.at + maxAdvance, false})
		}
	}
}

// heldBy returns the hold of a lane, or nil.
func (m *meter) heldBy(l *lane) *hold {
	if i := slices.IndexFunc(m.holds, func(h hold) bool { return h.lane == l }); i >= 0 {
		return &m.holds[i]
	}
	return nil
}

// releaseAll ends all holds of a lane.
func (c *Core) releaseAll(l *lane) {
	for _, n := range l.needs {
		if c.release(n.meter, l) {
			c.wake(n.meter, 0)
		}
	}
}

// release ends the hold of a lane at a meter, and reports whether there was one.
func (c *Core) release(m *meter, l *lane) bool {
	return c.removeHolds(m, func(h hold) bool { return h.lane == l })
}

func (c *Core) removeHolds(m *meter, which func(hold) bool) bool {
	before := len(m.holds)
	if m.holds = slices.DeleteFunc(m.holds, which); len(m.holds) == before {
		return false
	}
	c.touch(m)
	return true
}

// updateHolds ends the holds of a meter whose time is over, and releases permits for more turns
// than a lane can use.
func (c *Core) updateHolds(m *meter, now int64) {
	c.removeHolds(m, func(h hold) bool { return h.until <= now })
	for i := range m.holds {
		h := &m.holds[i]
		if !h.hasBegun && h.from <= now {
			h.hasBegun = true
			c.touch(m)
		}
		if most := h.usefulTurns(m, now); h.turns > most {
			if h.turns = most; most == 1 {
				h.until = min(h.until, now+h.lane.turnInterval(m)+maxAdvance)
			}
		}
	}
}

// nextHold returns the next time at which a hold of a meter begins or ends, or has too many turns.
func (m *meter) nextHold(now int64) int64 {
	next := never
	for _, h := range m.holds {
		next = min(next, h.next())
		if more := m.nextMore(now); more < never && h.turns > 1 {
			next = min(next, max(now, more-(h.turns-1)*h.lane.turnInterval(m)/missedTurns)+1)
		}
	}
	return next
}

// extraTurn is a turn of a lane that waits at another meter. The turn was charged (paid), or
// permits are held for it (held), or both.
type extraTurn struct {
	lane       *lane
	need       int
	paid, held bool
}

// holdMore makes a lane that waits elsewhere hold permits for one more turn if its turn is before
// l's. It reports whether there is such a lane.
func (c *Core) holdMore(m *meter, l *lane, now int64) bool {
	returns := c.hasPriority(l, l.index(m))
	for i := 0; i < len(m.holds) && !c.isDisabled(holdingSeveral); i++ {
		h := &m.holds[i]
		o, index := h.lane, h.lane.index(m)
		n := &o.needs[index]
		if o == l || o.waitsAt == m && !o.full || n.perRefill <= 1 || h.until <= now {
			continue
		}
		turns := n.prepaid
		if o.hasPaid(index) {
			turns++
		}
		pays := !returns && turns < o.maxPrepaid(n) && c.nextBefore(m, o, l)
		fits := c.held(m, l, now)+n.cost+l.need(m).cost <= n.perRefill*n.cost
		holds := fits && h.turns < h.usefulTurns(m, now) && (pays || h.turns < turns && (!returns || c.before(m, o, l)))
		if !pays && !holds {
			continue
		}
		m.extraTurns = append(m.extraTurns, extraTurn{o, index, pays, holds})
		if pays && !o.hasPaid(index) {
			c.pay(o, index)
		} else if pays {
			if n.prepaid++; n.prepaid == 1 {
				n.prepaidSince = o.lastTurn
			}
			c.charge(o, index)
		}
		if holds {
			if h.turns++; h.turns == 1 {
				h.from, h.hasBegun = now, true
				c.touch(m)
			} else {
				h.until = max(h.until, now+n.returnTime())
			}
		}
		return true
	}
	return false
}

// undoExtra undoes extra turns before a turn that was not granted. It refunds them only if that
// turn is refunded, too.
func (c *Core) undoExtra(turns []extraTurn, refund bool) {
	for _, t := range turns {
		if t.need >= len(t.lane.needs) {
			continue
		}
		n := &t.lane.needs[t.need]
		if h := n.heldBy(t.lane); h != nil && t.held {
			h.turns = max(0, h.turns-1)
		}
		switch {
		case !refund || !t.paid:
		case n.prepaid > 0:
			n.prepaid--
			c.refund(t.lane, *n)
		case t.lane.hasPaid(t.need):
			t.lane.paid &^= 1 << t.need
			c.refund(t.lane, *n)
		}
	}
}

// nextBefore reports whether a's next unpaid turn at a meter comes before b's turn.
func (c *Core) nextBefore(m *meter, a, b *lane) bool {
	n, o := a.need(m), b.need(m)
	s, t := n.share, o.share
	if s == t {
		return n.lastPrepaid < b.lastTurn
	}
	if s.parent != t.parent {
		s, t = s.parent, t.parent
	}
	return s.item.compare(&t.item) < 0
}

// turnInterval returns the time that the other meters of a lane take to give it a turn.
func (l *lane) turnInterval(m *meter) (interval int64) {
	for _, n := range l.needs {
		if n.meter != m {
			interval = max(interval, n.returnTime()/max(1, n.perRefill)*int64(n.lanes))
		}
	}
	return interval
}

// A lane may hold permits for missedTurns times as many turns as it can have until the meter gives
// more permits, because the lane may have missed turns.
const missedTurns = 8

// usefulTurns returns the number of turns for which a lane may hold permits until the meter gives
// more.
func (h *hold) usefulTurns(m *meter, now int64) int64 {
	more, interval := m.nextMore(now), h.lane.turnInterval(m)
	if more == never || interval == 0 {
		return never
	}
	return 1 + missedTurns*(more-now)/interval
}

// maxPrepaid returns how many turns at a window meter a lane may be charged in advance: as many as
// the lane can have in one window, and at most half of the turns that the window gives.
func (l *lane) maxPrepaid(n *need) int64 {
	most := n.perRefill / 2
	if interval := l.turnInterval(n.meter); interval > 0 {
		most = min(most, n.returnTime()/interval)
	}
	return max(1, most)
}

// useHolds releases what a lane held for the turn that it had.
func (c *Core) useHolds(l *lane, now int64) {
	for i := range l.needs {
		n := &l.needs[i]
		if n.prepaid > 0 {
			n.prepaid--
			if l.hasPaid(i) {
				c.refund(l, *n)
			} else {
				l.paid |= 1 << i
			}
		}
		h := n.heldBy(l)
		if h == nil {
			continue
		}
		if h.turns = max(0, h.turns-1); n.perRefill <= 1 {
			c.release(n.meter, l)
		} else {
			h.until = now + n.returnTime()
			c.touch(n.meter)
		}
		c.wake(n.meter, 0)
	}
}
