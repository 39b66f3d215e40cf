package fairqueue

import "slices"

// ApplyResults applies the results of the last Turns, in the same order. If there are fewer results
// than turns, the replies to the other turns were lost, and Redis may have granted their jobs.
// ApplyResults undoes these turns and pauses their lanes.
func (c *Core) ApplyResults(now int64, results []Result) {
	tries := c.pendingTurns
	c.pendingTurns = c.pendingTurns[:0]
	for i, t := range slices.Backward(tries) {
		if i >= len(results) || results[i].Outcome != Granted && results[i].Outcome != Impossible {
			c.undo(t)
		}
	}
	for i, t := range tries {
		if l := t.lane; l.held == nil || i < len(results) && results[i].Outcome != Skipped {
			l.held = t.Held
		}
	}
	for i, t := range tries {
		t.lane.pendingTurns--
		t.lane.queue.pendingTurns--
		if i < len(results) {
			c.applyResult(now, t, results[i])
		} else {
			c.expiries.putBy(&t.lane.expiry, now+lostReplyPause)
		}
	}
	for _, t := range tries {
		t.lane.held = nil
		c.reopen(now, t.lane.queue) // refused turns free the worker slots they had counted
	}
	for _, m := range c.served {
		l := m.first()
		m.next(l != nil && c.ready(m, l, now).at <= m.horizon(now))
		c.wake(m, 0)
	}
	c.served = c.served[:0]
}

func (c *Core) applyResult(now int64, t pendingTurn, r Result) {
	l := t.lane
	if r.Outcome == Granted {
		for _, n := range l.needs {
			n.trustTime = minTrust
			n.fullSince = 0 // a permit became free, with or without a notification
		}
	}
	c.updateNeeds(now, l, r)
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
		c.leave(l)
	case Full:
		c.markFull(now, l)
	case Refused:
		t.from.refused++
		c.refused(now, t)
	case Skipped:
		t.from.refused++
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
		if n.bounds.boundOf(t.Held[i]+n.cost).at > horizon {
			return
		}
	}
	m.noAdvanceUntil = max(m.noAdvanceUntil, now+clockSkew)
	m.update(now, t.Held[l.index(m)], Need{Cost: l.need(m).cost, Ready: now + clockSkew, Known: true})
}

// undo reverses a turn that was not granted. The lane gets its previous position back, and the
// charges count for its next turn. If the lane is charged for that turn already, or no job waits in
// it any more, the charges are refunded.
func (c *Core) undo(t pendingTurn) {
	l := t.lane
	same := l.waitsAt != nil && &l.needs[0] == &t.needs[0] // else it has left its meters since
	for i := range t.needs {
		if n := &t.needs[i]; same && n.paid < t.paid[i] {
			n.paid++
			t.missed = nil // the lanes that this turn passed over keep their charges, as this lane does
		} else {
			c.refund(l, n)
		}
	}
	for _, o := range t.missed {
		if i := o.index(t.from); i >= 0 && o.needs[i].paid > 0 {
			o.needs[i].paid--
			c.refund(o, &o.needs[i])
		}
	}
	if same {
		l.lastTurn = min(l.lastTurn, t.key)
		if !l.isPassedOver() {
			c.enqueue(l)
		}
	}
}

// updateNeeds stores what Redis replied about the needs of a lane's first job.
func (c *Core) updateNeeds(now int64, l *lane, r Result) {
	if l.waitsAt == nil || len(r.Next) != len(l.needs) {
		return
	}
	l.read = true
	for i, n := range r.Next {
		own := &l.needs[i]
		own.cost, own.refill, own.perRefill = n.Cost, n.Refill, n.PerRefill
		own.meter.limitAdvance(now, r.MaxAdvance)
		if l.held[i] == 0 && !n.Known && !n.Blocked {
			if own.isConcurrency = true; n.Ready > now && own.fullSince == 0 {
				own.fullSince = now
			}
		}
		if own.update(now, l.held[i], n) {
			own.trustTime = minTrust
			c.wake(own.meter, 0)
		}
	}
}
