package fairqueue

// lane is a queue and a set of meters, with jobs that wait or are granted.
type lane struct {
	name     string
	queue    *queue
	fairKey  string
	weight   int64
	lastTurn int64 // its key: the number of its last turn, or of its making
	// waitsAt is the meter at which it waits; nil if none of its jobs waits, or its queue is
	// stopped. item is its place there, in standsIn.
	waitsAt  *meter
	item     item[*lane]
	standsIn *sorted[*lane]
	needs    []need
	read     bool // needs are those of its first job; before its first turn only its meters are known
	// heldMeters counts the meters it holds, tries its turns without a reply.
	heldMeters, pendingTurns int
	// paid has the needs, by bit, at whose meters its next turn counts already: its turn had come
	// there, and then the lane had to wait elsewhere.
	paid uint64
	// slotWait is its place among the lanes of its queue that wait for a free worker slot, and
	// passedSince when that began, since its last granted job.
	slotWait    item[*lane]
	passedSince int64
	grants
}

// need is what the first job of a lane needs of a meter.
type need struct {
	*meter
	share                   *share // of the lane
	cost, refill, perRefill int64
	// prepaid is how many turns after the next one count at the meter already, lastPrepaid the
	// number of the last of them, and prepaidSince the lane's key when the first of them was
	// counted.
	prepaid, lastPrepaid, prepaidSince int64
	// askedTotal is for how many permits, held ones included, the meter was last asked, and askedAt
	// how many turns it had given by then.
	askedTotal, askedAt int64
}

// AddLane says that a lane got its first job. A lane that is added again keeps its turn. Lanes are
// to be added in the order of their numbers.
func (c *Core) AddLane(name string, number int64) {
	c.seq = max(c.seq, number)
	if l := c.lane(name); !l.waits() {
		c.enter(l, c.nextNumber())
	}
}

// AddReadLane adds a lane with what its first job needs. The lane waits at the meter that is ready
// last, or, if all are ready, at one where another lane waits already. It holds its other meters as
// if it had had its turn there.
func (c *Core) AddReadLane(now int64, name string, number int64, needs []Need) {
	c.AddLane(name, number)
	l := c.lane(name)
	if len(needs) != len(l.needs) {
		return
	}
	l.read = true
	x := wait{meter: l.waitsAt, bound: bound{at: now}}
	for i, n := range needs {
		own := &l.needs[i]
		own.cost, own.refill, own.perRefill = n.Cost, n.Refill, n.PerRefill
		own.update(now, 0, n)
		if n.Ready > x.at {
			x = wait{meter: own.meter, bound: bound{at: n.Ready, unknown: !n.Known, blocked: n.Blocked}}
		}
	}
	if x.meter == l.waitsAt {
		return
	}
	c.move(now, l, x)
	for i := range l.needs {
		if m := l.needs[i].meter; m != x.meter && c.ready(m, l, now).at <= now {
			c.hold(l, m, x, now)
		}
	}
}

func (c *Core) nextNumber() int64 {
	c.seq++
	return c.seq
}

// lane returns the lane of a name, which it makes if there is none.
func (c *Core) lane(name string) *lane {
	l := c.lanes[name]
	if l == nil {
		l = &lane{name: name, queue: c.queue(Queue(name))}
		l.fairKey, l.weight = FairnessKey(name)
		l.item.value, l.expiry.value, l.slotWait.value = l, l, l
		c.lanes[name] = l
	}
	return l
}

// waits reports whether a job of the lane waits.
func (l *lane) waits() bool { return l.waitsAt != nil || l.parked }

// enter has a lane wait at a meter where another lane waits already, which it may not pass, or else
// where it is likely to wait longest.
func (c *Core) enter(l *lane, key int64) {
	if l.queue.stopped {
		l.park(key)
		return
	}
	l.read = false
	names := Meters(l.name)
	l.needs = make([]need, len(names))
	var at *meter
	for i, name := range names {
		m := c.meter(name)
		l.needs[i] = need{meter: m, cost: 1, share: c.share(m, l, key)}
		m.lanes++
		if len(names) > 1 {
			m.multiLimit++
		}
		c.touch(m)
		if at == nil || m.waitsLonger(at) {
			at = m
		}
	}
	c.attach(l, at, key)
	c.wake(at, min(at.boundOf(1).at, at.trustedUntil()))
}

// waitsLonger reports whether a lane that comes has to wait longer at m than at o.
func (m *meter) waitsLonger(o *meter) bool {
	if (m.waiting > 0) != (o.waiting > 0) {
		return m.waiting > 0
	}
	return m.boundOf(1).at > o.boundOf(1).at
}

// leave has a lane wait nowhere.
func (c *Core) leave(l *lane) {
	l.parked = false
	if l.waitsAt == nil {
		return
	}
	c.releaseAll(l)
	c.stopAwaitingSlot(l)
	for i := range l.needs {
		for ; l.needs[i].prepaid > 0; l.needs[i].prepaid-- {
			c.refund(l, l.needs[i])
		}
	}
	c.refundAll(l, l.needs, l.paid)
	c.detach(l)
	for _, n := range l.needs {
		n.lanes--
		n.share.lanes--
		n.share.parent.lanes--
		if len(l.needs) > 1 {
			n.multiLimit--
		}
		c.touch(n.meter)
	}
	l.needs, l.full, l.paid = nil, false, 0
}

// enqueue puts a lane among those that can be granted at its meter.
func (c *Core) enqueue(l *lane) {
	l.dequeue()
	l.item.rank = l.queue.rank
	i := l.index(l.waitsAt)
	n := &l.needs[i]
	if c.returns(l, i) {
		l.standsIn = &l.waitsAt.returning
		l.standsIn.put(&l.item, l.returnKey(i))
		return
	}
	l.standsIn = &n.share.queue
	l.standsIn.put(&l.item, l.lastTurn)
	n.share.enter()
}

// dequeue takes it out again.
func (l *lane) dequeue() {
	if l.item.position > 0 {
		l.standsIn.remove(&l.item)
		l.need(l.waitsAt).share.leave()
	}
}

func (c *Core) attach(l *lane, m *meter, key int64) {
	l.waitsAt, l.lastTurn = m, key
	m.waiting++
	c.enqueue(l)
	c.touch(m)
}

func (c *Core) detach(l *lane) {
	l.dequeue()
	l.waitsAt.waiting--
	c.touch(l.waitsAt)
	l.waitsAt = nil
}
