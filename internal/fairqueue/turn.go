package fairqueue

import "slices"

// pendingTurn is a turn that was sent to Redis and has no result yet.
type pendingTurn struct {
	Turn
	from *need // the lane's need of the meter that gave the turn
	// position and paid are the lane's position and its paid turns at each of the needs, before the
	// turn. undo restores them.
	position int64
	paid     []int64
	needs    []*need
	// missed lists the other lanes that were charged for a missed turn just before this turn.
	missed []*need
}

const (
	// maxAdvance is the longest time before its permits are available at which a job is granted.
	// Holds are kept for maxAdvance after the expected ready time.
	maxAdvance = 40_000
	// travelTime is the time from a promotion within which nearly each worker asks for the permits, on
	// a busy machine, too. If jobs may take permits early, they are granted at least so long before.
	travelTime = 10_000
	// clockSkew is the delay before a lane gets another turn, if Redis refused its turn although
	// every meter seemed ready.
	clockSkew = 1_000
)

// wait says at which meter a lane must wait, and until when. If behind is true, another lane has an
// earlier turn there. If behind is false, the meter has too few free permits.
type wait struct {
	*need
	bound
	behind bool
}

// Turns returns up to n turns to try now, in order. Each is chosen as if the turns before it were
// granted. Pass the results to ApplyResults.
func (c *Core) Turns(now int64, n int) (turns []Turn) {
	if len(c.pendingTurns) > 0 {
		c.ApplyResults(now, nil)
	}
	for _, q := range slices.Clone(c.slotQueues) {
		for len(q.waiting) > 0 && now >= q.reopensAt(now) {
			c.stopWaiting(q.waiting[0].value)
		}
	}
	for len(c.pendingTurns) < n && c.due.next() <= now {
		m := c.due[0].value
		m.due.remove()
		c.serve(m, now, n)
	}
	for _, t := range c.pendingTurns {
		turns = append(turns, t.Turn)
	}
	return turns
}

// serve gives turns to the lanes that wait at a meter, until there are `most` pending turns. A lane
// that has its turn but is blocked by another meter moves to that meter and keeps its position.
func (c *Core) serve(m *meter, now int64, most int) {
	if len(m.holds) > 0 {
		m.holds = slices.DeleteFunc(m.holds, func(n *need) bool { return n.until <= now })
		c.touched[m] = true // a hold may have begun or ended
	}
	for m.left > 0 && len(c.pendingTurns) < most {
		n := m.first()
		if n == nil {
			c.sleep(m, never, now)
			return
		}
		if !c.mayTakeTurn(now, n.lane) {
			c.waitForWorker(now, n.lane)
			continue
		}
		ready := c.ready(n, now)
		early := ready.at > m.horizon(now)
		if early && now < c.trustedUntil(m) {
			c.prepareHolds(n.lane, wait{n, ready, false}, now)
			c.sleep(m, min(ready.at-m.leadTime(now), c.trustedUntil(m)), now)
			return
		}
		if !early {
			if c.payMissed(n, now) {
				continue
			}
			c.pay(n)
		}
		x := c.blocker(n, now)
		if x.need != nil && n.lane.pendingTurns > 0 {
			return // the lane's position depends on the pending turn
		}
		if x.behind || x.need != nil && n.lane.knowsNeeds && !early {
			if !early {
				c.holdWhile(n, x, now)
			}
			c.prepareHolds(n.lane, x, now)
			if c.isDisabled(keepPosition) {
				n.lane.position = c.nextNumber()
			}
			c.waitAt(x.need, x.at)
			continue
		}
		c.try(n, now)
		if early {
			m.trustTime = min(2*m.trustTime, maxTrust)
			m.left = 0
		}
	}
}

// sleep schedules the next service of a meter at a time, or earlier when a hold starts or ends.
func (c *Core) sleep(m *meter, at, now int64) {
	m.missed = nil
	if at = min(at, m.nextHold(now)); at < never {
		c.wake(m, at)
	}
}

// ready returns the time from which the meter can give the lane's permits, beyond those held for
// other lanes; zero means now.
func (c *Core) ready(n *need, now int64) bound { return n.boundOf(c.held(n, now) + n.Cost) }

// blocker returns for which other meter a lane must wait that has its turn at the meter of `at`; an
// empty wait means none. It charges the lane at the other meters where the lane has its turn.
func (c *Core) blocker(at *need, now int64) (w wait) {
	for _, n := range at.lane.needs {
		if n == at {
			continue
		}
		f := n.first()
		behind := f != nil && c.before(f, n) && !c.isDisabled(noOvertaking)
		if !behind {
			c.pay(n)
		}
		b := c.ready(n, now)
		b.at = max(b.at, now)
		if (behind || b.at > now) && (w.need == nil || behind && !w.behind || behind == w.behind && b.at > w.at) {
			w = wait{n, b, behind}
		}
	}
	return w
}

// try adds a pending turn for a lane and moves the lane behind the others, as if the turn were
// granted.
func (c *Core) try(at *need, now int64) {
	l, m := at.lane, at.meter
	for _, n := range l.needs {
		c.pay(n)
	}
	t := pendingTurn{
		from: at, position: l.position, needs: l.needs, paid: make([]int64, len(l.needs)), missed: m.missed,
		Turn: Turn{Lane: l.name, Advance: m.horizon(now) - now, Held: make([]int64, len(l.needs))},
	}
	for i, n := range l.needs {
		t.Held[i], t.paid[i] = c.held(n, now), n.paid
		n.paid--
	}
	c.pendingTurns = append(c.pendingTurns, t)
	l.pendingTurns++
	l.queue.pendingTurns++
	m.left--
	m.missed = nil
	l.position = c.nextNumber()
	c.enqueue(l)
}

// ApplyResults applies the results of the last Turns, in the same order. If there are fewer results
// than turns, the replies to the other turns were lost, and Redis may have granted their jobs.
// ApplyResults undoes these turns and pauses their lanes.
func (c *Core) ApplyResults(now int64, results []Result) {
	turns := c.pendingTurns
	c.pendingTurns = turns[:0]
	for i, t := range slices.Backward(turns) {
		if i >= len(results) || results[i].Outcome != Granted && results[i].Outcome != Impossible {
			c.undo(t)
		}
	}
	for i, t := range turns {
		if l := t.from.lane; l.held == nil || i < len(results) && results[i].Outcome != Skipped {
			l.held = t.Held
		}
	}
	for i, t := range turns {
		l := t.from.lane
		l.pendingTurns--
		l.queue.pendingTurns--
		if i < len(results) {
			c.applyResult(now, t, &results[i])
		} else {
			c.expiries.putBy(&l.expiry, now+lostReplyPause)
		}
	}
	for i, t := range turns {
		t.from.lane.held = nil
		c.reopen(now, t.from.lane.queue) // turns that were not granted use no worker slot
		m := t.from.meter
		if slices.ContainsFunc(turns[:i], func(o pendingTurn) bool { return o.from.meter == m }) {
			continue
		}
		if n := m.first(); !m.refused && n != nil && c.ready(n, now).at <= m.horizon(now) {
			m.left, m.step = m.step, min(2*m.step, maxBatch)
		} else {
			m.left, m.step, m.gave = max(1, min(m.gave, maxBatch)), 1, 0
		}
		m.refused = false
		c.wake(m, 0)
	}
}

func (c *Core) applyResult(now int64, t pendingTurn, r *Result) {
	l, m := t.from.lane, t.from.meter
	if r.Outcome == Granted {
		for _, n := range l.needs {
			n.trustTime = minTrust
			n.fullSince = 0 // a permit became free, with or without a notification
		}
	}
	c.updateNeeds(now, l, r)
	switch r.Outcome {
	case Granted, Impossible:
		m.gave++
		m.takesEarly = r.TakesEarly
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
		m.refused = true
		c.refused(now, t)
	case Skipped:
		m.refused = true
		return
	}
	c.setGranted(now, l, r.Granted)
}

// refused handles a refused turn. If all meters were believed ready, the clocks differ slightly,
// and the meter is tried again after clockSkew.
func (c *Core) refused(now int64, t pendingTurn) {
	n := t.from
	if n.lane.at == nil {
		return // a turn of the same batch took its last job
	}
	horizon := n.horizon(now)
	for i, o := range n.lane.needs {
		if o.boundOf(t.Held[i]+o.Cost).at > horizon {
			return
		}
	}
	n.noAdvanceUntil = max(n.noAdvanceUntil, now+clockSkew)
	n.update(now, bound{total: t.Held[slices.Index(t.needs, n)] + n.Cost, at: now + clockSkew})
}

// undo reverses a turn that was not granted. The lane gets its previous position back, and the
// charges count for its next turn. The charges are refunded if the lane is already charged for its
// next turn, or has no waiting job.
func (c *Core) undo(t pendingTurn) {
	l := t.from.lane
	stayed := l.at != nil && l.needs[0] == t.needs[0] // the lane has not left its meters since the turn
	for i, n := range t.needs {
		if stayed && n.paid < t.paid[i] {
			n.paid++
			t.missed = nil // the lanes that this turn passed over keep their charges, as this lane does
		} else {
			c.refund(n)
		}
	}
	for _, o := range t.missed {
		if o.paid > 0 {
			o.paid--
			c.refund(o)
		}
	}
	if stayed {
		l.position = min(l.position, t.position)
		if !l.isPassedOver() {
			c.enqueue(l)
		}
	}
}

// updateNeeds stores what Redis replied about the needs of a lane's first job.
func (c *Core) updateNeeds(now int64, l *lane, r *Result) {
	if l.at == nil || len(r.Next) != len(l.needs) {
		return
	}
	l.knowsNeeds = true
	for i, n := range l.needs {
		n.Need = r.Next[i]
		if advance := r.MaxAdvance; advance < maxAdvance { // for the next maxTrust, this applies to all lanes of the meter
			if n.nearUntil > now {
				advance = min(advance, n.nearAdvance)
			}
			n.nearUntil, n.nearAdvance = now+maxTrust, advance
		}
		if l.held[i] == 0 && !n.Known && !n.Blocked {
			if n.isConcurrency = true; n.Ready > now && n.fullSince == 0 {
				n.fullSince = now
			}
		}
		news := bound{total: l.held[i] + n.Cost, at: n.Ready, unknown: !n.Known, blocked: n.Blocked}
		if n.Blocked {
			news.total = 0
		}
		if n.update(now, news) {
			n.trustTime = minTrust
			c.wake(n.meter, 0)
		}
	}
}
