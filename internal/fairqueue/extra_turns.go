// The permits of a window come back all at once. So a lane that waits for another limit holds
// permits of the window for more than one turn: for as many as it would have had while others had
// theirs.

package fairqueue

// extraTurn is a turn of a lane that waits elsewhere: one turn more is counted as paid, or held.
type extraTurn struct {
	lane       *lane
	need       int
	paid, held bool
}

// holdMore has a lane that waits elsewhere hold permits for one more turn if its turn comes before
// l's, and reports whether one does.
func (c *Core) holdMore(m *meter, l *lane, now int64) bool {
	returns := c.returns(l, l.index(m))
	for i := 0; i < len(m.holds) && !c.without(holdingSeveral); i++ {
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
				h.from, h.begun = now, true
				c.touch(m)
			} else {
				h.until = max(h.until, now+n.returnTime())
			}
		}
		return true
	}
	return false
}

// undoExtra takes back turns before one that was not granted. What was paid is taken back only if
// that one is refunded, too.
func (c *Core) undoExtra(turns []extraTurn, refund bool) {
	for _, k := range turns {
		if k.need >= len(k.lane.needs) {
			continue
		}
		n := &k.lane.needs[k.need]
		if h := n.heldBy(k.lane); h != nil && k.held {
			h.turns = max(0, h.turns-1)
		}
		switch {
		case !refund || !k.paid:
		case n.prepaid > 0:
			n.prepaid--
			c.refund(k.lane, *n)
		case k.lane.hasPaid(k.need):
			k.lane.paid &^= 1 << k.need
			c.refund(k.lane, *n)
		}
	}
}

// nextBefore reports whether a's next turn that does not count yet comes before b's at a meter.
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

// turnInterval returns how long the other meters of a lane take to give it a turn.
func (l *lane) turnInterval(m *meter) (interval int64) {
	for _, n := range l.needs {
		if n.meter != m {
			interval = max(interval, n.returnTime()/max(1, n.perRefill, n.atOnce)*int64(n.lanes))
		}
	}
	return interval
}

// spare is for how many times as many turns a lane may hold permits as it can have until the meter
// gives more: it may have missed some.
const spare = 8

// usefulTurns returns for how many turns a lane may hold permits until the meter gives more.
func (h *hold) usefulTurns(m *meter, now int64) int64 {
	more, interval := m.nextMore(now), h.lane.turnInterval(m)
	if more == never || interval == 0 {
		return never
	}
	return 1 + spare*(more-now)/interval
}

// maxPrepaid returns for how many turns a lane may hold what comes together: for those that it can
// have until that comes again.
func (l *lane) maxPrepaid(n *need) int64 {
	most := n.perRefill / 2
	if interval := l.turnInterval(n.meter); interval > 0 {
		most = min(most, n.returnTime()/interval)
	}
	return max(1, most)
}

// useHolds gives up what a lane holds for the turn that it had.
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
