package fairqueue

import (
	"cmp"
	"maps"
	"slices"
)

// queue is one of asynq's queues, with what its servers reported about their worker slots.
type queue struct {
	name string
	// weight is the share of turns relative to a queue of weight 1. Queues with a lower rank are
	// served first regardless of weight.
	weight, rank int64
	// stopped means that no worker took the granted jobs: the queue is probably paused, has no
	// server, or all its workers are busy. Its lanes wait until a worker takes a granted job.
	stopped   bool
	arrivedAt int64 // time at which a granted job last arrived
	probedAt  int64 // time of the last scheduled probe of one of its lanes
	// Until limitedUntil, grants of the queue are limited to the free worker slots of its servers.
	limitedUntil int64
	servers      []*server
	// granted counts the granted jobs of grantedLanes that have not arrived: no worker has taken
	// them. slotsInFlight counts granted jobs that take a slot which a server's last report counts
	// as free: those that were not fetched before the report. pendingTurns counts turns without a
	// result. grantedAt is the time of the last grant.
	granted, pendingTurns, slotsInFlight int
	grantedAt                            int64
	grantedLanes                         map[*lane]struct{}
	// waiting holds the lanes that get no turns until a worker is free, in the order in which they
	// began to wait.
	waiting priorityQueue[*lane]
}

// server holds the last report of an asynq server about its worker slots.
type server struct {
	queues     []*queue
	report     SlotReport
	reportedAt int64
}

// SlotReport is what a server reports about its worker slots.
type SlotReport struct {
	Free     int   // free slots
	Interval int64 // average time until a slot becomes free, microseconds; 0 if it is unknown
	Queues   []string
	Arrived  []int64 // for each queue: promoted jobs that the server has fetched so far
}

const (
	// arrivalTime is the time within which a granted job arrives if a worker is free. If a job
	// arrives later, grants of its queue are limited to free slots for limitedFor.
	arrivalTime = 40_000
	limitedFor  = 30_000_000
	reportLife  = 3_000_000 // older reports are ignored; servers are asked each second
	// maxArrival is the time after a grant in which its job may be fetched although Redis knows of no
	// granted job any more.
	maxArrival = 1_000_000
	// A lane that has waited for slotPatience times the average time until a slot becomes free gets
	// a turn without a free slot.
	slotPatience = 50
	// lanesPerSlot is the number of waiting lanes that are tried per free slot; more than one,
	// because some are not ready.
	lanesPerSlot = 8
)

// Weight is the priority of a queue in asynq's sense.
type Weight struct {
	// Turns is how many turns it has while a queue of weight 1 has one.
	Turns int
	// Strict means asynq's strict priority: the queue is served before all queues of lower weight.
	// Queues that are not strict rank like a strict queue of weight 1.
	Strict bool
}

// SetWeights replaces the queue weights. Missing queues have weight 1.
func (c *Core) SetWeights(weights map[string]Weight) {
	for name := range weights {
		c.queue(name)
	}
	for name, q := range c.queues {
		w := weights[name]
		q.weight, q.rank = int64(max(1, w.Turns)), 0
		if w.Strict && !c.isDisabled(ranking) {
			q.rank = 1 - q.weight
		}
	}
	for _, l := range c.lanes {
		if l.item.in != nil {
			c.enqueue(l)
		}
	}
	for _, m := range c.meters {
		for name, s := range m.shares.parts {
			s.item.rank, s.item.key = c.queue(name).rank, max(s.item.key, m.shares.servedPass)
			s.reposition()
		}
		c.wake(m, 0)
	}
}

func (c *Core) queue(name string) *queue {
	q := c.queues[name]
	if q == nil {
		q = &queue{name: name, weight: 1, grantedLanes: map[*lane]struct{}{}}
		c.queues[name] = q
	}
	return q
}

// SetSlots records a server's report about its free worker slots for its queues. Granted
// jobs that the report does not count as arrived will take some of these slots. At the first report
// of a queue, these are all granted jobs. The lanes of the queues are checked for arrived jobs.
func (c *Core) SetSlots(now int64, name string, report SlotReport) {
	s := c.servers[name]
	if s == nil {
		for name, s := range c.servers { // remove servers that have not reported for reportLife
			if !s.isAlive(now) {
				delete(c.servers, name)
				for _, q := range s.queues {
					q.servers = slices.DeleteFunc(q.servers, func(o *server) bool { return o == s })
				}
			}
		}
		s = &server{}
		c.servers[name] = s
		for _, queue := range report.Queues {
			q := c.queue(queue)
			s.queues, q.servers = append(s.queues, q), append(q.servers, s)
		}
	}
	if len(report.Queues) != len(s.queues) || len(report.Arrived) != len(s.queues) {
		return // not of this server: any client of Redis can send notifications
	}
	for i, q := range s.queues {
		switch {
		case !slices.ContainsFunc(q.servers, func(o *server) bool { return o.isAlive(now) }):
			q.slotsInFlight = q.granted
		case s.isAlive(now):
			q.slotsInFlight = max(0, q.slotsInFlight-int(report.Arrived[i]-s.report.Arrived[i]))
		}
		if now-q.grantedAt > maxArrival { // jobs that were deleted take no slot
			q.slotsInFlight = min(q.slotsInFlight, q.granted)
		}
	}
	s.report, s.reportedAt = report, now
	for _, q := range s.queues {
		for _, l := range slices.SortedFunc(maps.Keys(q.grantedLanes), func(a, b *lane) int { return cmp.Compare(a.name, b.name) }) {
			c.expiries.putBy(&l.expiry, now)
		}
		c.reopen(now, q)
	}
}

func (s *server) isAlive(now int64) bool { return s.reportedAt > 0 && now-s.reportedAt < reportLife }

// QueuesToReport lists the queues whose servers should report free slots.
func (c *Core) QueuesToReport(now int64) (queues []string) {
	for name, q := range c.queues {
		if q.isLimited(now) {
			queues = append(queues, name)
		}
	}
	slices.Sort(queues)
	return queues
}

// limitIfLate limits the grants of the lane's queue to the free slots of its servers, if other
// queues could use the lane's permits and a granted job of the lane is late. The caller sets `late`
// if it knows already that a job is late.
func (c *Core) limitIfLate(now int64, l *lane, late bool) {
	if (late || l.isLate(now, arrivalTime)) && c.isContended(l) {
		l.queue.limitedUntil = now + limitedFor
	}
}

// isLimited reports whether a queue gets no more permits than its servers have free slots.
func (q *queue) isLimited(now int64) bool {
	return now < q.limitedUntil || len(q.waiting) > 0 && !q.stopped
}

// isContended reports whether lanes of other queues need one of the lane's meters.
func (c *Core) isContended(l *lane) bool {
	return slices.ContainsFunc(Meters(l.name), func(name string) bool {
		m, own := c.meters[name], 0
		if m == nil {
			return false
		}
		if s := m.shares.parts[l.queue.name]; s != nil {
			own = s.lanes
		}
		return own < m.lanes
	})
}

// mayTakeTurn reports whether a lane need not wait for a worker.
func (c *Core) mayTakeTurn(now int64, l *lane) bool {
	q := l.queue
	if q.stopped {
		return false
	}
	return !q.isLimited(now) || q.hasFreeSlot(now) || !c.isContended(l) || l.slotWaitSince > 0 && now >= l.slotWaitSince+q.maxSlotWait(now)
}

// hasFreeSlot reports whether a worker is free for one more job of a queue, according to its
// servers. The servers' other queues use the same slots, so jobs of those queues count, too. If no
// server has reported, a worker is assumed to be free.
func (q *queue) hasFreeSlot(now int64) bool {
	free, used := 0, map[*queue]int{}
	for _, s := range q.servers {
		if s.isAlive(now) {
			free += s.report.Free
			for _, o := range s.queues {
				used[o] = o.slotsInFlight + o.pendingTurns
			}
		}
	}
	for _, n := range used {
		free -= n
	}
	return len(used) == 0 || free > 0
}

// waitForWorker makes a lane wait until a worker is free. The lane releases what it held. The lane
// with the earliest slotWaitSince comes first.
func (c *Core) waitForWorker(now int64, l *lane) {
	q := l.queue
	if !q.stopped {
		q.limitedUntil = max(q.limitedUntil, now+limitedFor)
	}
	if len(q.waiting) == 0 {
		c.slotQueues = append(c.slotQueues, q)
	}
	for _, n := range l.needs {
		c.release(n)
	}
	l.dequeue()
	l.at.waiting--
	c.touched[l.at.meter] = true
	l.slotWaitSince = cmp.Or(l.slotWaitSince, now)
	q.waiting.put(&l.slotWait, l.slotWaitSince)
}

// stopWaiting ends the wait of a lane for a worker.
func (c *Core) stopWaiting(l *lane) {
	q := l.queue
	if l.slotWait.in == nil {
		return
	}
	if l.slotWait.remove(); len(q.waiting) == 0 {
		c.slotQueues = slices.DeleteFunc(c.slotQueues, func(o *queue) bool { return o == q })
	}
	l.at.waiting++
	c.touched[l.at.meter] = true
	c.resume(l)
}

// reopen lets lanes of a queue take turns again if workers are free for them.
func (c *Core) reopen(now int64, q *queue) {
	for i := 0; i < lanesPerSlot && len(q.waiting) > 0 && !q.stopped && q.hasFreeSlot(now); i++ {
		c.stopWaiting(q.waiting[0].value)
	}
}

// reopensAt returns the time at which the next lane of a queue may take a turn without a free slot:
// when the lane has waited for maxSlotWait, or when the servers have stopped reporting. For a
// stopped queue, reopensAt returns the constant never.
func (q *queue) reopensAt(now int64) int64 {
	if q.stopped {
		return never
	}
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
		if s.isAlive(now) && s.report.Interval > 0 {
			interval = min(interval, s.report.Interval)
		}
	}
	return slotPatience * interval
}

// storeGranted stores the number of granted jobs of a lane that have not arrived.
func (l *lane) storeGranted(n int) {
	q := l.queue
	q.granted += n - l.granted
	if l.granted = n; n > 0 {
		q.grantedLanes[l] = struct{}{}
	} else {
		delete(q.grantedLanes, l)
	}
}
