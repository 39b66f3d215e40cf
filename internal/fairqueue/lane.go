package fairqueue

// lane holds the scheduling state of one lane: the jobs of one asynq queue and fairness key that
// need the same meters.
type lane struct {
	name     string
	queue    *queue
	fairKey  string
	weight   int64
	position int64 // nextNumber at the lane's last turn, or at the start of its wait; smaller is earlier
	// at is the need at whose meter the lane waits; nil if none of its jobs waits. item is the
	// lane's entry among the lanes that can be granted there.
	at           *need
	item         item[*lane]
	needs        []*need
	knowsNeeds   bool    // whether Redis has replied what the first job needs
	pendingTurns int     // turns without a result
	held         []int64 // the Turn.Held to which Result.Next refers; nil except while results are applied
	// slotWait is the lane's entry among those that wait for a worker. slotWaitSince is the start
	// of the first such wait since the lane's last grant, or 0.
	slotWait      item[*lane]
	slotWaitSince int64

	granted int // granted jobs that have not arrived: Redis's last reply plus the grants since then
	// reserved lists granted jobs with reserved permits, oldest first. Any arriving job takes the
	// oldest permits, so only the last `granted` entries count until the next ExpireGrants call.
	reserved []grant
	overdue  []grant // jobs with expired reservations; they are promoted again, at growing pauses
	// expiry is the time of the next ExpireGrants call for this lane, checkedAt the time of the
	// last one.
	expiry    item[*lane]
	checkedAt int64
	full      bool // the lane gets no turns: its granted jobs fill the capacity of a meter
}

// need is what the first job of a lane needs of a meter.
type need struct {
	*meter
	Need
	lane  *lane
	share *share // the share of the lane's fairness key at the meter
	// paid is the number of turns at the meter that the lane is charged for and has not used. Only
	// payMissed makes it exceed 1. paidPosition is the lane's position before these turns.
	paid, paidPosition int64
	chargedAt          int64 // nextNumber at the last charge
	hold
}

// AddLane adds a lane with waiting jobs. number is its number in Redis. Lanes must be added in the
// order of their numbers. If a known lane is added again, Redis may have lost it, so its meters are
// published again.
func (c *Core) AddLane(name string, number int64) {
	c.seq = max(c.seq, number)
	if c.HasLane(name) {
		c.Republish(name)
	}
	c.enter(c.lane(name))
}

// HasLane reports whether the core knows of waiting or granted jobs of a lane.
func (c *Core) HasLane(name string) bool { return c.lanes[name] != nil }

// IsEmpty reports whether the core knows of no waiting or granted job.
func (c *Core) IsEmpty() bool { return len(c.lanes) == 0 }

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

// enter makes a lane wait at one of its meters, if it does not wait yet. Meters with waiting lanes
// come first, because the lane must not overtake them. Among equal meters, it waits at the one that
// is ready last.
func (c *Core) enter(l *lane) {
	if l.at != nil {
		return
	}
	l.knowsNeeds, l.position = false, c.nextNumber()
	names := Meters(l.name)
	var at *need
	for _, name := range names {
		n := &need{meter: c.meter(name), Need: Need{Cost: 1}, lane: l}
		ofQueue := c.part(&n.shares, l.queue.name, l.queue.weight, l.position)
		ofQueue.item.rank = l.queue.rank
		n.share = c.part(ofQueue, l.fairKey, l.weight, l.position)
		l.needs = append(l.needs, n)
		n.lanes++
		if len(names) > 1 {
			n.multiLimit++
		}
		c.touched[n.meter] = true
		if n.waiting > 0 && (at == nil || at.waiting == 0) {
			at = n
		} else if at == nil || (n.waiting > 0) == (at.waiting > 0) && n.boundOf(1).at > at.boundOf(1).at {
			at = n
		}
	}
	c.waitAt(at, at.boundOf(1).at)
}

// leave removes a lane from its meters, ends its holds and refunds its charges.
func (c *Core) leave(l *lane) {
	if l.at == nil {
		return
	}
	c.stopWaiting(l)
	c.detach(l)
	for _, n := range l.needs {
		c.release(n)
		for ; n.paid > 0; n.paid-- {
			c.refund(n)
		}
		n.lanes--
		n.share.removeLane()
		if len(l.needs) > 1 {
			n.multiLimit--
		}
		c.touched[n.meter] = true
	}
	l.needs, l.full = nil, false
}

// waitAt makes a lane wait at the meter of a need. The meter is ready at the time `ready`.
func (c *Core) waitAt(n *need, ready int64) {
	if n.lane.at != nil {
		c.detach(n.lane)
	}
	n.lane.at = n
	n.waiting++
	c.touched[n.meter] = true
	c.enqueue(n.lane)
	c.wake(n.meter, min(ready, c.trustedUntil(n.meter)))
}

func (c *Core) detach(l *lane) {
	l.dequeue()
	l.at.waiting--
	c.touched[l.at.meter] = true
	l.at = nil
}

// enqueue puts a lane among those that can be granted at its meter.
func (c *Core) enqueue(l *lane) {
	l.dequeue()
	l.item.rank = l.queue.rank
	if n := l.at; c.hasPriority(n) {
		n.returning.put(&l.item, n.paidPosition)
	} else {
		n.share.queue.put(&l.item, l.position)
		n.share.enter()
	}
}

// dequeue takes a lane out of those that can be granted.
func (l *lane) dequeue() {
	if l.item.in != nil {
		l.item.remove()
		l.at.share.leave()
	}
}

// isPassedOver reports whether a waiting lane gets no turns: it is full or waits for a worker.
func (l *lane) isPassedOver() bool { return l.full || l.slotWait.in != nil }

// resume lets a lane take turns again, unless it is still passed over for another reason.
func (c *Core) resume(l *lane) {
	if !l.isPassedOver() {
		c.enqueue(l)
		c.wake(l.at.meter, 0)
	}
}
