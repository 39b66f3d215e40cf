package fairqueue

import "slices"

// A lane that waits at a fast meter holds permits of its slower meters. Otherwise lanes that need
// only a slower meter would take all of its permits meanwhile. The permits of a window return all
// at once, so a lane may hold permits of a window for several turns: for as many as it misses while
// other lanes have theirs. Without that, a lane that also needs another limit would get only one
// turn in each window.

// hold records permits of a meter that are kept back for a lane which waits at another meter.
type hold struct {
	lane        *lane
	from, until int64 // the permits are held between these times
	// least is the least number of turns for which permits are held: 1, or 0 after the lane had its
	// turn. At a window, permits are held for all turns that the lane has paid for.
	least int64
}

// turns returns the number of turns for which permits of m are held. At a window, that is at most 1
// plus missedTurns times the turns that the lane can still have before the window ends. So permits
// that the lane can no longer use are released before the window ends.
func (h *hold) turns(m *meter, now int64) int64 {
	n := h.lane.need(m)
	if n.perRefill <= 1 {
		return h.least
	}
	most, more, interval := never, m.nextMore(now), h.lane.turnInterval(m)
	if more < never && interval > 0 {
		most = 1 + missedTurns*(more-now)/interval
	}
	return min(max(h.least, n.paid), most)
}

// held returns the number of permits of a meter that are held by lanes whose turn is before l's.
func (c *Core) held(m *meter, l *lane, now int64) (sum int64) {
	for i := range m.holds {
		h := &m.holds[i]
		if h.lane != l && h.from <= now && h.until > now && (c.before(m, h.lane, l) || c.isDisabled(yielding)) {
			sum += h.lane.need(m).cost * h.turns(m, now)
		}
	}
	return sum
}

// hold makes the lane l, which waits at x, hold its permits of the ready meter m, if holdUntil
// finds the hold useful.
func (c *Core) hold(l *lane, m *meter, x wait, now int64) {
	own := l.need(m)
	until, useful := l.holdUntil(own, x, now)
	if !useful || c.isDisabled(holding) || x.behind && c.isDisabled(holdingBehind) {
		return
	}
	if h := own.heldBy(l); h != nil && own.paid > 1 {
		until = max(h.until, until)
	}
	c.setHold(m, hold{l, now, until, 1}, until)
}

// setHold sets the hold of a lane at a meter, in place of an earlier one. The meter is served at
// the time `at` or sooner.
func (c *Core) setHold(m *meter, h hold, at int64) {
	c.release(m, h.lane)
	m.holds = append(m.holds, h)
	c.touched[m] = true
	c.wake(m, at)
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

// prepareHolds prepares the other meters of a lane that waits at x. It extends the lane's holds,
// because x may be ready later than was known. If the lane is first at x and other lanes wait at
// one of its other meters, the lane holds permits of that meter from shortly before x is ready.
// Otherwise two meters that get ready one after the other would always serve lanes that need only
// one of them.
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
		if meets && n.waiting > 0 && (h == nil || h.turns(n.meter, now) == 0) && x.at-now <= n.returnTime() && c.ready(n.meter, l, now).at <= x.at {
			from := x.at - min(maxAdvance, n.returnTime())
			c.setHold(n.meter, hold{l, from, x.at + maxAdvance, 1}, from)
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
	c.touched[m] = true
	return true
}

// nextHold returns the next time at which a hold of a meter begins or ends, or is for too many
// turns.
func (m *meter) nextHold(now int64) int64 {
	next, more := never, m.nextMore(now)
	for i := range m.holds {
		h := &m.holds[i]
		if next = min(next, h.until); h.from > now {
			next = min(next, h.from)
		}
		if turns := h.turns(m, now); more < never && turns > 1 {
			next = min(next, max(now, more-(turns-1)*h.lane.turnInterval(m)/missedTurns)+1)
		}
	}
	return next
}

// payMissed looks for a lane that holds permits of the window m but cannot take its turn there: it
// waits at another meter, or is full. If its next turn comes before l's, payMissed charges the lane
// for that turn, and the lane holds permits for one more turn. The result reports whether a lane
// was charged.
func (c *Core) payMissed(m *meter, l *lane, now int64) bool {
	if c.hasPriority(l, l.index(m)) || c.isDisabled(holdingSeveral) {
		return false
	}
	for hi := range m.holds {
		h := &m.holds[hi]
		o, i := h.lane, h.lane.index(m)
		n := &o.needs[i]
		if o != l && (o.waitsAt != m || o.full) && n.perRefill > 1 && h.until > now && n.paid < o.maxPaid(n) && c.nextBefore(m, o, l) {
			c.payOnce(o, i)
			m.missed = append(m.missed, o)
			h.until = max(h.until, now+n.returnTime())
			return true
		}
	}
	return false
}

// nextBefore reports whether a's next unpaid turn at a meter comes before b's turn.
func (c *Core) nextBefore(m *meter, a, b *lane) bool {
	n, o := a.need(m), b.need(m)
	s, t := n.share, o.share
	if s == t {
		return n.chargedAt < b.lastTurn
	}
	if s.parent != t.parent {
		s, t = s.parent, t.parent
	}
	return s.item.compare(&t.item) < 0
}

// turnInterval returns the time in which the meters of a lane other than m give it one turn, in
// microseconds. It is 0 if the lane needs only m.
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

// maxPaid returns how many turns at a window a lane may be charged in advance: as many as the lane
// can have in one window, and at most half of the turns that the window gives.
func (l *lane) maxPaid(n *need) int64 {
	most := n.perRefill / 2
	if interval := l.turnInterval(n.meter); interval > 0 {
		most = min(most, n.returnTime()/interval)
	}
	return max(1, most)
}

// useHolds ends the holds of a lane for its granted turn. At windows the lane keeps the permits that
// are held for its other paid turns.
func (c *Core) useHolds(l *lane, now int64) {
	for _, n := range l.needs {
		h := n.heldBy(l)
		if h == nil {
			continue
		}
		if h.least = 0; n.perRefill <= 1 {
			c.release(n.meter, l)
		} else {
			h.until = now + n.returnTime()
		}
		c.wake(n.meter, 0)
	}
}
