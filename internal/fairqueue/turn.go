package fairqueue

// try is a turn that was given and has not been answered.
type try struct {
	lane *lane
	from *meter
	// key is the lane's before the turn, which it gets back if it is not called.
	key int64
	// needs and paid are the lane's, too.
	needs []need
	paid  uint64
	// kept are turns that other lanes had before it, to hold one more.
	kept []kept
	Turn
}

// Turns returns at most n turns to try now, in this order, chosen as if each
// of them were granted. Tried takes the answers.
func (c *Core) Turns(now int64, n int) []Turn {
	if len(c.tries) > 0 {
		c.Tried(now, nil)
	}
	c.room = n
	c.reopenDue(now)
	for len(c.tries) < n {
		m, ok := c.due.due(now)
		if !ok {
			break
		}
		c.due.remove(&m.due)
		c.serve(m, now)
	}
	turns := make([]Turn, len(c.tries))
	for i, t := range c.tries {
		turns[i] = t.Turn
	}
	return turns
}

// serve lets the lanes that wait at a meter have their turns. A lane stays where
// it is until its turn has come and it cannot be called; then it waits, with its
// key, where it must.
func (c *Core) serve(m *meter, now int64) {
	c.renew(m, now)
	m.watch(now)
	for m.left > 0 && len(c.tries) < c.room {
		l := m.first()
		if l == nil {
			c.rest(m, never, now)
			return
		}
		if !c.hasWorker(now, l) {
			c.passOverLane(now, l)
			continue
		}
		ready := c.ready(m, l, now)
		early := ready.at > m.horizon(now)
		if early && now < m.askAt() {
			c.await(l, wait{m, ready, false}, now)
			c.rest(m, min(ready.at-m.lead(now), m.askAt()), now)
			return
		}
		if !early {
			if c.keepMore(m, l, now) {
				continue
			}
			c.pay(l, l.index(m))
		}
		x := c.blocker(l, m, now)
		if x.meter != nil && l.trying > 0 {
			return // its key is not known before the answer
		}
		if x.behind || x.meter != nil && l.looked && !early && c.sure(m, l, now) {
			if !early {
				c.hold(l, m, x, now)
			}
			c.await(l, x, now)
			c.move(now, l, x)
			continue
		}
		c.try(l, m, now)
		if early {
			m.patience = min(2*m.patience, mostPatience)
			m.left = 0
		}
	}
}

// await prepares a lane's other meters for the time when x is ready.
func (c *Core) await(l *lane, x wait, now int64) {
	c.keep(l, x, now)
	c.meet(l, x, now)
}

// rest has a meter be looked at again at a time, or when a hold ends.
func (c *Core) rest(m *meter, at, now int64) {
	m.kept = nil
	if at = min(at, m.nextHold(now)); at < never {
		c.wake(m, at)
	}
}

// ready is when a meter can be ready for a lane.
func (c *Core) ready(m *meter, l *lane, now int64) bound {
	return m.bounds.ready(c.held(m, l, now) + l.need(m).cost)
}

// sure reports whether m is known to be ready for a lane for which it can be.
func (c *Core) sure(m *meter, l *lane, now int64) bool {
	n := l.need(m)
	return n.sure(c.held(m, l, now) + n.cost)
}

// horizon is until when a permit must exist for its job to be called now.
func (m *meter) horizon(now int64) int64 {
	switch {
	case !m.ahead(now):
		return now
	case m.near <= now:
		return now + slack
	case m.early:
		return now + max(little, m.within)
	}
	return now
}

// nearer notes how far ahead a job may be called. Others there are called no further for some time.
func (m *meter) nearer(now, ahead int64) {
	if ahead >= slack {
		return
	}
	if m.near > now {
		ahead = min(ahead, m.within)
	}
	m.near, m.within = now+mostPatience, ahead
}

// lead is how long before its permits exist a job is called that begins when they do: it
// comes first. Of what is called together that is the first, so it is a part of the horizon.
func (m *meter) lead(now int64) int64 {
	if m.early {
		ahead := m.horizon(now) - now
		return min(coming, ahead, max(little, ahead/4))
	}
	return 0
}

// little is how far ahead a job is called where a meter gives few at once: about as long as
// one takes to come. One that is there sooner begins when its permit exists.
const little = 1_500

// coming is how long a called job takes to come, mostly.
const coming = 5_000

// ahead reports whether jobs may be called ahead: not where a lane needs several
// meters. It would keep the permits of one while it waits for another's, and
// where others are called ahead it could not have both at once.
func (m *meter) ahead(now int64) bool { return m.wide == 0 && m.exact <= now }

// wait is the meter at which a lane must wait, and until when: behind an older
// lane, or because it is not ready.
type wait struct {
	*meter
	bound
	behind bool
}

// blocker returns what a lane whose turn has come on m must wait for elsewhere;
// no meter if it can be called.
func (c *Core) blocker(l *lane, m *meter, now int64) (w wait) {
	for i, n := range l.needs {
		if n.meter == m {
			continue
		}
		f := n.first()
		behind := f != nil && c.before(n.meter, f, l) && !c.without(notPassing)
		if !behind {
			c.pay(l, i)
		}
		b := c.ready(n.meter, l, now)
		b.at = max(b.at, now)
		if (behind || b.at > now) && (w.meter == nil || behind && !w.behind || behind == w.behind && b.at > w.at) {
			w = wait{n.meter, b, behind}
		}
	}
	return w
}

// move has a lane wait elsewhere, with its key.
func (c *Core) move(now int64, l *lane, x wait) {
	key := l.number
	if c.without(keptKeys) {
		key = c.number()
	}
	if n := &l.needs[l.index(x.meter)]; n.ahead > 0 {
		n.missing = now
	}
	c.part(l)
	c.join(l, x.meter, key)
	c.wake(x.meter, min(x.at, x.meter.askAt()))
}

// try gives a lane a turn. As if it were granted, it goes behind the others.
func (c *Core) try(l *lane, m *meter, now int64) {
	for i := range l.needs {
		c.pay(l, i)
	}
	t := try{lane: l, from: m, kept: m.kept, key: l.number, needs: l.needs, paid: l.paid, Turn: Turn{Lane: l.name, Advance: m.horizon(now) - now}}
	for i, n := range l.needs {
		if held := c.held(n.meter, l, now); held > 0 {
			if t.Held == nil {
				t.Held = make([]int64, len(l.needs))
			}
			t.Held[i] = held
		}
	}
	c.tries = append(c.tries, t)
	if !m.tried {
		m.tried = true
		c.served = append(c.served, m)
	}
	l.trying++
	l.queue.trying++
	m.left--
	m.kept = nil
	l.number, l.paid = c.number(), 0
	c.stand(l)
}
