package fairqueue

// Tried takes the results of the last Turns, in their order. Results that are
// missing were lost on the way: their jobs may be called.
func (c *Core) Tried(now int64, results []Result) {
	tries := c.tries
	c.tries = c.tries[:0]
	for i, t := range tries {
		t.lane.trying--
		t.lane.queue.trying--
		if i < len(results) {
			c.tried(now, t, results[i])
		} else {
			c.takeBack(t)
			c.expireBy(t.lane, now+lostPause)
		}
	}
	for _, t := range tries {
		c.reopen(now, t.lane.queue) // what was refused takes no slot
	}
	for _, m := range c.served {
		l := m.first()
		m.adjust(l != nil && c.ready(m, l, now).at <= m.horizon(now))
		c.wake(m, 0)
	}
	c.served = c.served[:0]
}

func (c *Core) tried(now int64, t try, r Result) {
	l := t.lane
	if r.Outcome == Granted {
		for _, n := range l.needs {
			n.meter.given++
			n.patience = leastPatience
			n.gives(now)
		}
	}
	c.learn(now, t, r)
	switch r.Outcome {
	case Granted, Learn:
		t.from.gave++
		t.from.early = r.TakesEarly
		c.use(l, now)
		c.count(now, l, r.Granted-1)
		c.call(now, l, r)
		if r.Next == nil {
			c.leave(l)
		}
	case Empty:
		c.payBack(l, t.needs, t.paid)
		c.leave(l)
	case Full:
		c.takeBack(t)
		c.fill(now, l)
	case Refused:
		t.from.refused++
		c.takeBack(t)
		c.refused(now, t)
	case Skipped:
		t.from.refused++
		c.takeBack(t)
	}
	if r.Outcome != Skipped {
		c.count(now, l, r.Granted)
	}
}

// blink is when a turn is tried again, and not ahead, that was refused though every
// meter was said to be ready: the clocks differ.
const blink = 1000

// refused learns from a refusal: the meter is not ready yet.
func (c *Core) refused(now int64, t try) {
	l, m := t.lane, t.from
	if l.at == nil {
		return // a turn of the same batch took its last job
	}
	horizon := m.horizon(now)
	for i, n := range l.needs {
		if n.bounds.ready(t.held(i)+n.cost).at > horizon {
			return
		}
	}
	m.exact = max(m.exact, now+blink)
	m.tell(now, t.held(l.index(m)), Need{Cost: l.need(m).cost, Ready: now + blink, Known: true})
}

// takeBack gives a lane its key back, and what it has paid; a later turn of a batch counts
// for nobody.
func (c *Core) takeBack(t try) {
	l := t.lane
	later := l.at == nil || t.key >= l.number
	c.keepLess(t.kept, later)
	if later {
		c.payBack(l, t.needs, t.paid)
		return
	}
	c.payBack(l, l.needs, l.paid)
	l.number, l.paid = t.key, t.paid
	if !l.isPassedOver() {
		c.stand(l)
	}
}

// learn takes what the meters said about a lane's first job.
func (c *Core) learn(now int64, t try, r Result) {
	if t.lane.at == nil || len(r.Next) != len(t.lane.needs) {
		return
	}
	t.lane.looked = true
	for i, n := range r.Next {
		own := &t.lane.needs[i]
		own.cost, own.refill, own.together = n.Cost, n.Refill, n.PerRefill
		held := int64(0)
		if r.Held != nil {
			held = r.Held[i]
		}
		own.meter.nearer(now, r.MaxAdvance)
		if held == 0 && !n.Known && !n.Blocked {
			own.meter.fills(now, n.Ready)
		}
		own.asked, own.given = held+n.Cost, own.meter.given
		if own.tell(now, held, n) {
			own.patience = leastPatience
			c.wake(own.meter, 0)
		}
	}
}

// held is how many permits of a meter the turn was to leave.
func (t *try) held(need int) int64 {
	if t.Held == nil {
		return 0
	}
	return t.Held[need]
}
