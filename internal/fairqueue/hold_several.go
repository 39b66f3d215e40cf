// Permits of a window come all at once, so a lane that waits for another limit holds more than one
// turn of them: as many as it would have had while others had theirs.

package fairqueue

import "slices"

// kept is a turn of a lane that waits elsewhere: one more is counted as paid, or held.
type kept struct {
	lane       *lane
	need       int
	paid, held bool
}

// keepMore has a lane that waits elsewhere hold permits for one more turn if its turn
// comes before that of l.
func (c *Core) keepMore(m *meter, l *lane, now int64) bool {
	returns := c.returns(l, l.index(m))
	for i := 0; i < len(m.holds) && !c.without(holdingSeveral); i++ {
		h := &m.holds[i]
		index := h.lane.index(m)
		n := &h.lane.needs[index]
		if h.lane == l || h.lane.at == m && !h.lane.full || n.together <= 1 || h.till <= now {
			continue
		}
		turns := n.ahead
		if h.lane.hasPaid(index) {
			turns++
		}
		pays := !returns && turns < h.lane.mostAhead(index, now) && c.nextBefore(m, h.lane, l)
		fits := c.held(m, l, now)+n.cost+l.need(m).cost <= n.together*n.cost
		holds := fits && h.turns < h.most(m, now) && (pays || h.turns < turns && (!returns || c.before(m, h.lane, l)) && !slices.Contains(m.kept, kept{h.lane, index, false, true}))
		if !pays && !holds {
			continue
		}
		m.kept = append(m.kept, kept{h.lane, index, pays, holds})
		if pays && !h.lane.hasPaid(index) {
			c.pay(h.lane, index)
		} else if pays {
			if n.ahead++; n.ahead == 1 {
				n.since = h.lane.number
			}
			c.charge(h.lane, index)
		}
		if holds {
			if h.turns++; h.turns == 1 {
				h.from, h.begun = now, true
				c.touch(m)
			} else {
				h.till = max(h.till, now+n.comes())
			}
		}
		return true
	}
	return false
}

// keepLess takes that back; what is paid, only if the turn before which it was is paid back, too.
func (c *Core) keepLess(turns []kept, payBack bool) {
	for _, k := range turns {
		if k.need >= len(k.lane.needs) {
			continue
		}
		n := &k.lane.needs[k.need]
		if h := n.heldBy(k.lane); h != nil && k.held {
			h.turns = max(0, h.turns-1)
		}
		switch {
		case !payBack || !k.paid:
		case n.ahead > 0:
			n.ahead--
			c.refund(k.lane, *n)
		case k.lane.hasPaid(k.need):
			k.lane.paid &^= 1 << k.need
			c.refund(k.lane, *n)
		}
	}
}

// nextBefore reports whether at a meter the turn of a lane after those that count already
// comes before that of another.
func (c *Core) nextBefore(m *meter, a, b *lane) bool {
	n, o := a.need(m), b.need(m)
	s, t := n.share, o.share
	if s == t {
		return n.last < b.number
	}
	if s.of != t.of {
		s, t = s.of, t.of
	}
	return s.place.compare(&t.place) < 0
}

// pace is how long the other meters of a lane take to give it a turn.
func (l *lane) pace(m *meter, now int64) (pace int64) {
	for _, n := range l.needs {
		if n.meter != m {
			comes := n.comes()
			if n.are && n.full > 0 && l.at == n.meter && now-n.full > 2*comes {
				comes = now - n.full
			}
			pace = max(pace, comes/max(1, n.together, n.atOnce)*int64(n.lanes))
		}
	}
	return pace
}

// most is for how many turns a lane can use what is held until the meter gives more.
func (h *hold) most(m *meter, now int64) int64 {
	more, pace := m.more(now), h.lane.pace(m, now)
	if more == never || pace == 0 {
		return never
	}
	return 1 + max(2*(more-now)/pace, h.lane.need(m).extra)
}

// mostAhead is for how many turns a lane may hold what comes together: for those that it can
// have until that comes again.
func (l *lane) mostAhead(need int, now int64) int64 {
	n := &l.needs[need]
	most := n.together / 2
	if pace := l.pace(n.meter, now); pace > 0 {
		most = min(most, n.comes()/pace)
	}
	return max(1, most)
}

// use gives up what a lane holds for the turn that it had.
func (c *Core) use(l *lane, now int64) {
	for i := range l.needs {
		n := &l.needs[i]
		if pace := l.pace(n.meter, now); n.missing > 0 && pace > 0 {
			n.extra = min(n.ahead, n.extra+1+(now-n.missing)/pace)
		}
		n.missing = 0
		if n.ahead > 0 {
			n.ahead--
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
		if h.turns > 1 && n.extra > 0 {
			n.extra--
		}
		if h.turns = max(0, h.turns-1); n.together <= 1 {
			c.release(n.meter, l)
		} else {
			h.till = now + n.comes()
			c.touch(n.meter)
		}
		c.wake(n.meter, 0)
	}
}

// holdsFor reports whether anything is held of a meter for a lane.
func (m *meter) holdsFor(l *lane) bool {
	h := m.heldBy(l)
	return h != nil && h.turns > 0
}
