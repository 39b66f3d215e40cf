package fairqueue

// ApplyResults applies the results of the last Turns, which are in the same order. A turn without a
// result is one whose reply was lost: its job may be granted.
func (c *Core) ApplyResults(now int64, results []Result) {
	tries := c.pendingTurns
	c.pendingTurns = c.pendingTurns[:0]
	for i, t := range tries {
		t.lane.pendingTurns--
		t.lane.queue.pendingTurns--
		if i < len(results) {
			c.applyResult(now, t, results[i])
		} else {
			c.undo(t)
			c.expiries.putBy(&t.lane.expiry, now+lostReplyPause)
		}
	}
	for _, t := range tries {
		c.reopen(now, t.lane.queue) // refused turns free the worker slots they had counted
	}
	for _, m := range c.served {
		l := m.first()
		m.adjust(l != nil && c.ready(m, l, now).at <= m.horizon(now))
		c.wake(m, 0)
	}
	c.served = c.served[:0]
}

func (c *Core) applyResult(now int64, t pendingTurn, r Result) {
	l := t.lane
	if r.Outcome == Granted {
		for _, n := range l.needs {
			n.trustTime = minTrust
			n.observeFreed(now)
			n.fullSince = 0 // a permit became free, with or without a notification
		}
	}
	c.updateNeeds(now, t, r)
	switch r.Outcome {
	case Granted, Impossible:
		t.from.gave++
		t.from.takesEarly = r.TakesEarly
		c.useHolds(l, now)
		c.setGranted(now, l, r.Granted-1)
		c.grant(now, l, r)
		if r.Next == nil {
			c.leave(l)
		}
	case Empty:
		c.refundAll(l, t.needs, t.paid)
		c.leave(l)
	case Full:
		c.undo(t)
		c.markFull(now, l)
	case Refused:
		t.from.refused++
		c.undo(t)
		c.refused(now, t)
	case Skipped:
		t.from.refused++
		c.undo(t)
		return
	}
	c.setGranted(now, l, r.Granted)
}

// refused handles a refused turn. If all meters were believed ready, the clocks differ slightly,
// and the meter is tried again after clockSkew.
func (c *Core) refused(now int64, t pendingTurn) {
	l, m := t.lane, t.from
	if l.waitsAt == nil {
		return // a turn of the same batch took its last job
	}
	horizon := m.horizon(now)
	for i, n := range l.needs {
		if n.bounds.boundOf(valueAt(t.Held, i)+n.cost).at > horizon {
			return
		}
	}
	m.noAdvanceUntil = max(m.noAdvanceUntil, now+clockSkew)
	m.update(now, valueAt(t.Held, l.index(m)), Need{Cost: l.need(m).cost, Ready: now + clockSkew, Known: true})
}

// undo reverses a turn that was not granted: the lane gets its previous position and charges back.
// If an earlier turn of the same lane in this batch was already undone, only the charges of this
// turn are refunded.
func (c *Core) undo(t pendingTurn) {
	l := t.lane
	later := l.waitsAt == nil || t.key >= l.lastTurn
	c.undoExtra(t.extraTurns, later)
	if later {
		c.refundAll(l, t.needs, t.paid)
		return
	}
	c.refundAll(l, l.needs, l.paid)
	l.lastTurn, l.paid = t.key, t.paid
	if !l.isPassedOver() {
		c.enqueue(l)
	}
}

// updateNeeds stores what the meters replied about a lane's first job.
func (c *Core) updateNeeds(now int64, t pendingTurn, r Result) {
	if t.lane.waitsAt == nil || len(r.Next) != len(t.lane.needs) {
		return
	}
	t.lane.read = true
	for i, n := range r.Next {
		own, held := &t.lane.needs[i], valueAt(r.Held, i)
		own.cost, own.refill, own.perRefill = n.Cost, n.Refill, n.PerRefill
		own.meter.limitAdvance(now, r.MaxAdvance)
		if held == 0 && !n.Known && !n.Blocked {
			own.meter.setFull(now, n.Ready)
		}
		if own.update(now, held, n) {
			own.trustTime = minTrust
			c.wake(own.meter, 0)
		}
	}
}

// valueAt returns list[i], or 0 if the list is nil.
func valueAt(list []int64, i int) int64 {
	if list == nil {
		return 0
	}
	return list[i]
}
