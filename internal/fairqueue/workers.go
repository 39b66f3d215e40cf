package fairqueue

import (
	"cmp"
	"maps"
	"slices"
)

// workers holds what servers reported about the worker slots of a queue.
type workers struct {
	limitedUntil int64 // until then the queue gets no more permits than its servers have free slots
	servers      []*server
	// granted counts the granted jobs that have not come, of grantedLanes, and tries the turns
	// without a reply. owed counts those granted jobs that take a slot that was reported free.
	granted, pendingTurns, owed int
	grantedLanes                map[*lane]struct{}
	waiting                     sorted[*lane] // lanes that wait for a free slot, by the start of that wait
}

// server holds the last report of an asynq server about its worker slots.
type server struct {
	queues     []*queue
	free       int
	interval   int64 // average time until a slot becomes free, microseconds
	reportedAt int64
}

const (
	// arrivalTime is how soon after its permits exist a granted job comes if a worker is free. If
	// one comes later, its queue gets only as many permits as there are free slots, for limitedFor.
	arrivalTime = 40_000
	limitedFor  = 30_000_000
	reportLife  = 3_000_000 // servers are asked each second
	// slotPatience: a lane gets a turn without a free slot after so many times as long as a slot
	// takes to become free. The permits of that job wait for a slot, so at most a fiftieth of the
	// time is lost.
	slotPatience = 50
	// readmitted is the number of lanes that may take turns again for each free slot, because some
	// of them are not ready.
	readmitted = 8
)

// SetSlots sets the number of free worker slots that a server has for its queues, and the average
// time in microseconds until it has one more. Granted jobs that have not arrived will use some of
// these slots, so the lanes of the queues are checked for arrived jobs.
func (c *Core) SetSlots(now int64, name string, free int, interval int64, queues []string) {
	s := c.servers[name]
	if s == nil {
		for name, s := range c.servers { // that have reported nothing for long: they were stopped
			if !s.isAlive(now) {
				delete(c.servers, name)
				for _, q := range s.queues {
					q.servers = slices.DeleteFunc(q.servers, func(o *server) bool { return o == s })
				}
			}
		}
		s = &server{}
		c.servers[name] = s
		for _, queue := range queues {
			q := c.queue(queue)
			s.queues, q.servers = append(s.queues, q), append(q.servers, s)
		}
	}
	s.free, s.interval, s.reportedAt = free, interval, now
	for _, q := range s.queues {
		q.owed = q.granted
		for _, l := range slices.SortedFunc(maps.Keys(q.grantedLanes), func(a, b *lane) int { return cmp.Compare(a.name, b.name) }) {
			l.fromReport = true
			c.expireBy(l, now)
		}
		c.reopen(now, q)
	}
}

func (s *server) isAlive(now int64) bool { return now-s.reportedAt < reportLife }

// SlotsWanted lists the queues whose servers must report their free slots.
func (c *Core) SlotsWanted(now int64) (queues []string) {
	for name, q := range c.queues {
		if q.isLimited(now) {
			queues = append(queues, name)
		}
	}
	slices.Sort(queues)
	return queues
}

// limitIfLate limits the permits of a queue to the free slots of its servers, if a granted job of the
// lane is late and other queues could use its permits.
func (c *Core) limitIfLate(now int64, l *lane, late bool) {
	if (late || l.isLate(now, arrivalTime)) && c.isContended(l) {
		l.queue.limitedUntil = now + limitedFor
	}
}

// isLimited reports whether a queue gets no more permits than its servers have free slots. That
// lasts as long as lanes wait for a slot.
func (q *queue) isLimited(now int64) bool { return now < q.limitedUntil || len(q.waiting) > 0 }

// isContended reports whether lanes of other queues need one of the lane's meters. If not, no other
// job could use what is reserved for its own.
func (c *Core) isContended(l *lane) bool {
	return slices.ContainsFunc(Meters(l.name), func(name string) bool {
		m := c.meters[name]
		return m != nil && m.shares.part(l.queue.name).lanes < m.lanes
	})
}

// hasWorker reports whether a lane may have a turn: a worker is free for its job, or other queues
// do not need its meters, or it was passed over for long enough.
func (c *Core) hasWorker(now int64, l *lane) bool {
	q := l.queue
	if !q.isLimited(now) || q.hasFreeSlot(now) || !c.isContended(l) {
		return true
	}
	return l.passedSince > 0 && now >= l.passedSince+q.maxSlotWait(now)
}

// hasFreeSlot reports whether a worker is free for one more job of a queue, according to its
// servers. If none has reported, one is assumed to be.
func (q *queue) hasFreeSlot(now int64) bool {
	reported, free := false, -q.owed-q.pendingTurns
	others := map[*queue]bool{q: true}
	for _, s := range q.servers {
		if !s.isAlive(now) {
			continue
		}
		reported, free = true, free+s.free
		for _, o := range s.queues {
			if !others[o] {
				others[o] = true
				free -= max(0, o.owed+o.pendingTurns-o.otherSlots(now, q))
			}
		}
	}
	return !reported || free > 0
}

// otherSlots returns the number of free slots of a queue at servers that do not serve another queue.
func (q *queue) otherSlots(now int64, other *queue) (free int) {
	for _, s := range q.servers {
		if s.isAlive(now) && !slices.Contains(s.queues, other) {
			free += s.free
		}
	}
	return free
}

// discardReports discards free slots that servers reported before a job was promoted that has not
// come in time: a server may have died. One that lives reports again.
func (q *queue) discardReports(promotedAt int64) {
	for _, s := range q.servers {
		if promotedAt < never && s.reportedAt <= promotedAt {
			s.free = 0
		}
	}
}

// awaitSlot makes a lane wait for a free slot. The lane keeps its place and holds nothing.
func (c *Core) awaitSlot(now int64, l *lane) {
	q := l.queue
	q.limitedUntil = max(q.limitedUntil, now+limitedFor)
	if len(q.waiting) == 0 {
		c.slotQueues = append(c.slotQueues, q)
	}
	c.releaseAll(l)
	l.dequeue()
	l.passedSince = cmp.Or(l.passedSince, now)
	q.waiting.put(&l.slotWait, l.passedSince)
}

// stopAwaitingSlot ends the wait of a lane for a free slot.
func (c *Core) stopAwaitingSlot(l *lane) {
	if l.slotWait.position == 0 {
		return
	}
	q := l.queue
	q.waiting.remove(&l.slotWait)
	if len(q.waiting) == 0 {
		c.slotQueues = slices.DeleteFunc(c.slotQueues, func(o *queue) bool { return o == q })
	}
	c.resume(l)
}

// reopen lets lanes of a queue take turns again if workers are free for them.
func (c *Core) reopen(now int64, q *queue) {
	for range readmitted {
		if len(q.waiting) == 0 || !q.hasFreeSlot(now) {
			return
		}
		c.stopAwaitingSlot(q.waiting[0].value)
	}
}

// reopenDue does so for lanes that were passed over for long enough, and if no server has reported
// for long.
func (c *Core) reopenDue(now int64) {
	for _, q := range slices.Clone(c.slotQueues) {
		for len(q.waiting) > 0 && now >= q.reopens(now) {
			c.stopAwaitingSlot(q.waiting[0].value)
		}
	}
}

// reopens returns the time at which the next lane of a queue has a turn without a free slot.
func (q *queue) reopens(now int64) int64 {
	last := int64(0)
	for _, s := range q.servers {
		last = max(last, s.reportedAt+reportLife)
	}
	return min(last, q.waiting[0].key+q.maxSlotWait(now))
}

// maxSlotWait returns the time after which a lane has a turn although no slot is free.
func (q *queue) maxSlotWait(now int64) int64 {
	interval := never / slotPatience / 2
	for _, s := range q.servers {
		if s.isAlive(now) && s.interval > 0 {
			interval = min(interval, s.interval)
		}
	}
	return slotPatience * interval
}

// setGranted sets the number of granted jobs of a lane that have not arrived.
func (l *lane) setGranted(n int) {
	q := l.queue
	if came := l.granted - n; l.fromReport && came > 0 {
		q.owed = max(0, q.owed-came)
	}
	q.granted += n - l.granted
	l.granted = n
	if n > 0 {
		q.grantedLanes[l] = struct{}{}
	} else {
		delete(q.grantedLanes, l)
	}
}
