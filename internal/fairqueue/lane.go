package fairqueue

import "slices"

// lane holds the scheduling state of one lane: the jobs of one asynq queue and fairness key that
// need the same meters.
type lane struct {
	name     string
	queue    *queue
	fairKey  string
	weight   int64
	lastTurn int64 // position: number of the lane's last turn or of its creation; smaller is earlier
	// waitsAt is the meter at which it waits; nil if none of its jobs waits. The lane's entry in
	// the heap queuedIn is item.
	waitsAt      *meter
	item         item[*lane]
	queuedIn     *priorityQueue[*lane]
	needs        []need
	read         bool    // needs contains the costs of the first job; false until the first reply of Redis
	pendingTurns int     // turns without a reply
	held         []int64 // Turn.Held to which Result.Next refers; nil except while results are applied
	// slotWait is its entry among the lanes that wait for a worker. The start of the first such
	// wait since the lane's last grant is passedSince; 0 if there was none.
	slotWait    item[*lane]
	passedSince int64
	grants
}

// need is what the first job of a lane needs of a meter.
type need struct {
	*meter
	share                   *share // the share of the lane's fairness key at the meter
	cost, refill, perRefill int64
	// paid is the number of turns that the lane is charged for and has not used. It is 1 if the
	// lane's turn came here while the lane had to wait at another meter, and more if the lane then
	// missed turns at a window. The lane's position before the first of these turns is paidSince.
	paid, paidSince int64
	chargedAt       int64 // number of the last charge
}

// AddLane adds a lane with waiting jobs. number is its number in Redis. Adding a lane again has no
// effect. Lanes must be added in the order of their numbers.
func (c *Core) AddLane(name string, number int64) {
	c.seq = max(c.seq, number)
	if l := c.lane(name); l.waitsAt == nil {
		c.enter(l, c.nextNumber())
	}
}

func (c *Core) nextNumber() int64 {
	c.seq++
	return c.seq
}

// lane returns the lane with the given name, and creates it if needed.
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

// enter makes a lane wait at one of its meters. A meter at which other lanes wait comes first,
// because the lane must not overtake them. If there is none, or several, the lane waits at the one
// that is ready last. The lane's position is key.
func (c *Core) enter(l *lane, key int64) {
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
		c.touched[m] = true
		if at == nil || m.waitsLonger(at) {
			at = m
		}
	}
	c.attach(l, at, key)
	c.wake(at, min(at.boundOf(1).at, c.trustedUntil(at)))
}

// waitsLonger reports whether a new lane has to wait longer at m than at o.
func (m *meter) waitsLonger(o *meter) bool {
	if (m.waiting > 0) != (o.waiting > 0) {
		return m.waiting > 0
	}
	return m.boundOf(1).at > o.boundOf(1).at
}

// leave removes a lane from its meters, ends its holds and refunds its charges.
func (c *Core) leave(l *lane) {
	if l.waitsAt == nil {
		return
	}
	c.releaseAll(l)
	c.stopWaiting(l)
	for i := range l.needs {
		for n := &l.needs[i]; n.paid > 0; n.paid-- {
			c.refund(l, n)
		}
	}
	c.detach(l)
	for _, n := range l.needs {
		n.lanes--
		n.share.removeLane()
		if len(l.needs) > 1 {
			n.multiLimit--
		}
		c.touched[n.meter] = true
	}
	l.needs, l.full = nil, false
}

// enqueue puts a lane among those that can be granted at its meter.
func (c *Core) enqueue(l *lane) {
	l.dequeue()
	l.item.rank = l.queue.rank
	i := l.index(l.waitsAt)
	n := &l.needs[i]
	if c.hasPriority(l, i) {
		l.queuedIn = &l.waitsAt.returning
		l.queuedIn.put(&l.item, n.paidSince)
		return
	}
	l.queuedIn = &n.share.queue
	l.queuedIn.put(&l.item, l.lastTurn)
	n.share.enter()
}

// dequeue takes a lane out of those that can be granted.
func (l *lane) dequeue() {
	if l.item.position > 0 {
		l.queuedIn.remove(&l.item)
		l.need(l.waitsAt).share.leave()
	}
}

func (c *Core) attach(l *lane, m *meter, key int64) {
	l.waitsAt, l.lastTurn = m, key
	m.waiting++
	c.enqueue(l)
	c.touched[m] = true
}

func (c *Core) detach(l *lane) {
	l.dequeue()
	l.waitsAt.waiting--
	c.touched[l.waitsAt] = true
	l.waitsAt = nil
}

// need returns the lane's need for a meter.
func (l *lane) need(m *meter) need { return l.needs[l.index(m)] }

func (l *lane) index(m *meter) int {
	return slices.IndexFunc(l.needs, func(n need) bool { return n.meter == m })
}
