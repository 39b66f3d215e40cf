package fairqueue

import "slices"

// A lane that waits at a fast meter holds permits of its slower meters. Otherwise lanes that need
// only a slower meter would take all of its permits meanwhile. The permits of a window return all
// at once, so a lane may hold permits of a window for each turn that it misses there. Otherwise a
// lane that also needs another limit would get only one turn in each window.

// hold says when permits of a meter are kept back for a lane that waits at another meter.
type hold struct {
	from, until int64 // the permits are held between these times
	// least is the least number of turns for which permits are held: 1, or 0 after the lane had its
	// turn. At a window, permits are held for all turns that the lane has paid for.
	least int64
}

// isHeld reports whether the lane holds permits, or will later.
func (n *need) isHeld() bool { return slices.Contains(n.holds, n) }

// heldTurns returns the number of turns for which permits are held. At a window, the number is at
// most 1 plus missedTurns times the turns that the lane can still have before the window ends. So
// permits that the lane can no longer use are released before the window ends.
func (n *need) heldTurns(now int64) int64 {
	if n.PerRefill <= 1 {
		return n.least
	}
	most, more, interval := never, n.nextMore(now), n.turnInterval()
	if more < never && interval > 0 {
		most = 1 + missedTurns*(more-now)/interval
	}
	return min(max(n.least, n.paid), most)
}

// held returns the number of permits of a meter that are held by lanes whose turn is before n's.
func (c *Core) held(n *need, now int64) (sum int64) {
	for _, o := range n.holds {
		if o != n && o.from <= now && o.until > now && (c.before(o, n) || c.isDisabled(yielding)) {
			sum += o.Cost * o.heldTurns(now)
		}
	}
	return sum
}

// setHold sets the hold of a lane at a meter, in place of an earlier one. The meter is served at
// the time `at` or sooner.
func (c *Core) setHold(n *need, h hold, at int64) {
	if n.hold = h; !n.isHeld() {
		n.holds = append(n.holds, n)
	}
	c.touched[n.meter] = true
	c.wake(n.meter, at)
}

// release ends the hold of a lane at a meter, if there is one.
func (c *Core) release(n *need) {
	if i := slices.Index(n.holds, n); i >= 0 {
		n.holds = slices.Delete(n.holds, i, i+1)
		c.touched[n.meter] = true
		c.wake(n.meter, 0)
	}
}

// holdWhile makes a lane that waits at x hold its permits of the ready meter of n, if holdUntil
// finds the hold useful.
func (c *Core) holdWhile(n *need, x wait, now int64) {
	until, useful := n.holdUntil(x, now)
	if !useful || c.isDisabled(holding) || x.behind && c.isDisabled(holdingBehind) {
		return
	}
	if n.isHeld() && n.paid > 1 {
		until = max(n.until, until)
	}
	c.setHold(n, hold{now, until, 1}, until)
}

// holdUntil returns the time until which a lane that waits at x may hold its permits of another
// meter, and whether it may. The held permits must take at least as long to return as the permits
// of x, so that two lanes never hold what the other lane needs. x must be ready before the held
// permits would return.
func (n *need) holdUntil(x wait, now int64) (until int64, useful bool) {
	at, returnTime, otherReturnTime := x.at, n.returnTime(), x.returnTime()
	if x.unknown {
		at = now + otherReturnTime
	}
	isSlower := returnTime > otherReturnTime || returnTime == otherReturnTime && n.name >= x.name
	useful = n.lane.knowsNeeds && isSlower && !x.blocked && at-now <= returnTime
	if x.behind {
		return now + returnTime, useful
	}
	return at + maxAdvance, useful
}

// useHolds ends the holds of a lane for its granted turn. At windows the lane keeps the permits that
// are held for its other paid turns.
func (c *Core) useHolds(l *lane, now int64) {
	for _, n := range l.needs {
		if !n.isHeld() {
			continue
		}
		if n.least, n.until = 0, now; n.PerRefill > 1 {
			n.until += n.returnTime()
		}
		c.wake(n.meter, 0)
	}
}

// prepareHolds extends the holds of a lane that waits at x, because x may be ready later than
// expected. If the lane is first at x, it also holds permits of its contended other meters from
// shortly before x is ready. Otherwise two meters that get ready one after the other would serve
// only lanes that need one of them.
func (c *Core) prepareHolds(l *lane, x wait, now int64) {
	meets := l.knowsNeeds && !x.behind && !x.blocked && !x.unknown && !c.isDisabled(meeting)
	for _, n := range l.needs {
		if n == x.need {
			continue
		}
		isHeld := n.isHeld()
		if until, useful := n.holdUntil(x, now); isHeld && useful {
			n.until = max(n.until, until)
		}
		if meets && n.waiting > 0 && (!isHeld || n.heldTurns(now) == 0) && x.at-now <= n.returnTime() && c.ready(n, now).at <= x.at {
			from := x.at - min(maxAdvance, n.returnTime())
			c.setHold(n, hold{from, x.at + maxAdvance, 1}, from)
		}
	}
}

// nextHold returns the next time at which a hold of a meter begins, ends or shrinks.
func (m *meter) nextHold(now int64) int64 {
	next, more := never, m.nextMore(now)
	for _, n := range m.holds {
		if next = min(next, n.until); n.from > now {
			next = min(next, n.from)
		}
		if turns := n.heldTurns(now); more < never && turns > 1 {
			next = min(next, max(now, more-(turns-1)*n.turnInterval()/missedTurns)+1)
		}
	}
	return next
}

// payMissed looks for a lane that holds permits of a window but cannot take its turn there, because
// the lane waits at another meter or is full. If the lane's turn comes before n's, payMissed
// charges the lane, and the lane holds permits for one more turn. payMissed reports whether it
// charged a lane.
func (c *Core) payMissed(n *need, now int64) bool {
	if c.hasPriority(n) || c.isDisabled(holdingSeveral) {
		return false
	}
	for _, o := range n.holds {
		if o == n || o.lane.at == o && !o.lane.full || o.PerRefill <= 1 || o.until <= now || o.paid >= max(1, o.PerRefill/2) {
			continue
		}
		s, t := siblings(o, n)
		if s == t && o.chargedAt < n.lane.position || s != t && s.item.compare(&t.item) < 0 {
			c.payOnce(o)
			n.missed = append(n.missed, o)
			o.until = max(o.until, now+o.returnTime())
			return true
		}
	}
	return false
}

// turnInterval returns the time in which the other meters of a lane give it one turn, in
// microseconds. It is 0 if the lane has no other meter.
func (n *need) turnInterval() (interval int64) {
	for _, o := range n.lane.needs {
		if o != n {
			interval = max(interval, o.returnTime()/max(1, o.PerRefill)*int64(o.lanes))
		}
	}
	return interval
}

// missedTurns limits how many turns a lane may make up for at a window: see heldTurns.
const missedTurns = 8
