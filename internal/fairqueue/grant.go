package fairqueue

import "slices"

// grants tracks the granted jobs of a lane that have not taken their permits yet.
type grants struct {
	granted int // number of these jobs: Redis's last reply plus the grants since then
	// reserved lists granted jobs with reserved permits, oldest first. Redis reports only the
	// number of granted jobs that have not arrived. Any arriving job takes the oldest permits, so
	// only the last `granted` entries count. The other entries stay until the next ExpireGrants
	// call.
	reserved []grant
	overdue  []grant // jobs with expired reservations; they are promoted again, at growing pauses
	// expiry is the time of the next ExpireGrants call for this lane, checkedAt the time of the
	// last one.
	expiry    item[*lane]
	checkedAt int64
	full      bool // the lane gets no turns: it has as many granted jobs as its meters give at once
	// Between a server's slot report and the lane's next ExpireGrants reply, fromReport is true.
	// Jobs that this reply shows as arrived had taken their slots before the report, so setGranted
	// subtracts them from slotsInFlight.
	fromReport bool
}

// grant is a granted job. It is promoted at notifyAt, its permits are available from due, and its
// reservation ends at until.
type grant struct {
	id                   string
	notifyAt, due, until int64
	pause                int64 // backoff before the next promotion; 0 until the job is overdue
}

const (
	// minPause and maxPause bound the pauses between promotions of an overdue job.
	minPause = 250_000
	maxPause = 30_000_000
	// probeInterval is the interval at which the lanes of a stopped queue are checked in Redis, one
	// at a time.
	probeInterval = 1_000_000
	// Promotion times are rounded up to multiples of notifyStep if the lane's first meter frees the
	// permits of a job in less than notifyStep.
	notifyStep = 5_000
	// A job that was active when it was promoted is promoted again after minRepeat or later.
	minRepeat = 10_000
	// lostReplyPause is how soon after a lost reply Redis is asked which jobs are granted.
	lostReplyPause = 1_000_000
)

// grant records a granted job and schedules its promotion and the check of its reservation.
func (c *Core) grant(now int64, l *lane, r Result) {
	if r.Outcome == Impossible {
		r.At, r.Until = now, now+minPause
	}
	// A dense funnel frees the permits of a job in less than a notifyStep. If each of its jobs were
	// promoted early, they would occupy many worker slots until they may start. So their promotion
	// is rounded up to the next step.
	dense := len(l.needs) > 0 && l.needs[0].refill < notifyStep
	at := r.At
	switch {
	case dense && at > now:
		at += (notifyStep - at%notifyStep) % notifyStep
	case r.TakesEarly && len(l.overdue) == 0 && !l.isLate(now, travelTime):
		at = now
	}
	c.limitIfLate(now, l, len(l.overdue) > 0)
	l.setGranted(l.granted + 1)
	l.queue.slotsInFlight++
	l.passedSince = 0
	l.reserved = append(l.reserved, grant{id: r.Job, notifyAt: at, due: r.At, until: r.Until})
	c.notify(at, l, r.Job)
	c.expiries.putBy(&l.expiry, r.Until)
}

// isLate reports whether a granted job has not arrived although its permits have been available for
// more than `after` microseconds. An arriving job takes the oldest permits.
func (l *lane) isLate(now, after int64) bool {
	n := min(l.granted, len(l.reserved))
	return n > 0 && l.reserved[len(l.reserved)-n].due+after < now
}

// GrantedLanes returns the lanes that have granted jobs and need the meter.
func (c *Core) GrantedLanes(meter string) (names []string) {
	for _, q := range c.queues {
		for l := range q.grantedLanes {
			if slices.Contains(Meters(l.name), meter) {
				names = append(names, l.name)
			}
		}
	}
	return names
}

// HasLane reports whether the core knows of waiting or granted jobs of a lane.
func (c *Core) HasLane(name string) bool { return c.lanes[name] != nil }

// setGranted stores the number of granted jobs as reported by Redis. A smaller number than before
// means that jobs have arrived.
func (c *Core) setGranted(now int64, l *lane, granted int) {
	arrived := l.granted - granted
	l.setGranted(granted)
	if arrived > 0 {
		c.resumeQueue(now, l.queue)
		c.clearFull(l)
	}
	if granted == 0 {
		l.reserved, l.overdue = nil, nil
	}
	c.expireNext(now, l)
	if l.waitsAt == nil && l.granted == 0 && l.pendingTurns == 0 {
		c.expiries.remove(&l.expiry)
		delete(c.lanes, l.name)
	}
}

// Arrived records a JobArrived notification: the lane is not full any more, and its queue takes
// jobs. It does not change the number of granted jobs, because the next reply of Redis contains
// that number.
func (c *Core) Arrived(now int64, name string) {
	if l := c.lanes[name]; l != nil {
		c.resumeQueue(now, l.queue)
		c.clearFull(l)
	}
}

// markFull stops giving turns to a lane that has as many granted jobs as its meters allow at once.
// At windows, the lane holds permits for the turns that it is charged for, so that it does not lose
// these turns.
func (c *Core) markFull(now int64, l *lane) {
	if l.waitsAt == nil || c.isDisabled(filling) {
		return
	}
	l.full = true
	for _, n := range l.needs {
		if c.release(n.meter, l) {
			c.wake(n.meter, 0)
		}
		if n.perRefill > 1 {
			c.setHold(n.meter, hold{l, now, now + n.returnTime(), 0}, now+n.returnTime())
		}
	}
	l.dequeue()
}

func (c *Core) clearFull(l *lane) {
	if l.full {
		l.full = false
		c.resume(l)
	}
}

// isPassedOver reports whether a waiting lane currently gets no turns, because it is full or waits
// for a worker.
func (l *lane) isPassedOver() bool { return l.full || l.slotWait.position > 0 }

// resume lets a lane take turns again, unless it is still passed over for another reason.
func (c *Core) resume(l *lane) {
	if !l.isPassedOver() {
		c.enqueue(l)
		c.wake(l.waitsAt, 0)
	}
}

// notification is a granted job that is to be promoted at a time.
type notification struct {
	at   int64
	lane *lane
	id   string
}

// notify schedules the promotion of a job, after those already scheduled for the same time.
func (c *Core) notify(at int64, l *lane, id string) {
	i := len(c.notifications) // mostly the last place
	for i > 0 && c.notifications[i-1].at > at {
		i--
	}
	c.notifications = slices.Insert(c.notifications, i, notification{at, l, id})
}

// ToPromote returns at most n granted jobs that are to be moved to the head of their queues now.
func (c *Core) ToPromote(now int64, n int) (jobs []GrantedJob) {
	for len(jobs) < min(n, len(c.notifications)) && c.notifications[len(jobs)].at <= now {
		t := c.notifications[len(jobs)]
		jobs = append(jobs, GrantedJob{Queue: t.lane.queue.name, ID: t.id, Lane: t.lane.name})
	}
	c.notifications = slices.Delete(c.notifications, 0, len(jobs))
	return jobs
}

// Promoted records the state of a job after its promotion. If the job is done or gone, the caller
// has already removed its record from Redis, so the number of granted jobs must be read again. In
// asynq a job is also active while its denial is still being written. So an active job is promoted
// again, at growing pauses, for as long as permits are reserved for it.
func (c *Core) Promoted(now int64, job GrantedJob, state State) {
	l := c.lanes[job.Lane]
	if l == nil {
		return
	}
	switch state {
	case StateActive:
		c.resumeQueue(now, l.queue)
		if i := slices.IndexFunc(l.reserved, func(g grant) bool { return g.id == job.ID }); i >= 0 {
			if at := now + max(minRepeat, now-l.reserved[i].notifyAt); at < l.reserved[i].until {
				c.notify(at, l, job.ID)
			}
		}
	case StateDone, StateGone:
		c.changedFor(now, l)
		c.expiries.putBy(&l.expiry, now) // the job may have run already, so Redis no longer counts it as granted
	}
}

// ToExpire returns up to n lanes that must be checked with ExpireGrants now.
func (c *Core) ToExpire(now int64, n int) (lanes []string) {
	for len(lanes) < n && c.expiries.next() <= now {
		l := c.expiries[0].value
		lanes = append(lanes, l.name)
		c.expiries.put(&l.expiry, now+lostReplyPause) // in case the reply gets lost
	}
	return lanes
}

// Expired records the reply of ExpireGrants for a lane: the number of granted jobs that have not
// arrived, the IDs of jobs whose reservation has expired, and whether jobs wait. After a takeover
// overdue has the IDs of all granted jobs, and the core promotes those that it does not know.
func (c *Core) Expired(now int64, name string, granted int, overdue []string, waits bool) {
	l := c.lane(name)
	switch {
	case waits && l.waitsAt == nil:
		c.enter(l, c.nextNumber())
	case !waits:
		c.leave(l)
	}
	l.checkedAt = now
	arrived := granted < l.granted
	notifiedAt := c.setOverdue(now, l, overdue)
	if len(overdue) > 0 {
		c.changedFor(now, l) // what was reserved for them is free
	}
	if !arrived && notifiedAt < never {
		c.stop(now, l.queue, notifiedAt)
	}
	c.clearFull(l) // its meters may give more at once by now
	c.setGranted(now, l, granted)
	c.limitIfLate(now, l, notifiedAt < never)
	l.queue.discardReports(notifiedAt)
	l.fromReport = false
	c.reopen(now, l.queue)
}

// setOverdue is given the jobs whose reservation has expired. It splits the granted jobs of a lane
// into jobs that may still arrive in time and overdue jobs, which are promoted again at growing
// pauses. It returns the earliest promotion time of the jobs that became overdue in this call, or
// never.
func (c *Core) setOverdue(now int64, l *lane, ids []string) (notifiedAt int64) {
	known := map[string]grant{}
	for _, g := range slices.Concat(l.overdue, l.reserved) {
		known[g.id] = g
	}
	l.overdue = nil
	notifiedAt = never
	for _, id := range ids {
		g := known[id]
		delete(known, id)
		if g.pause == 0 && g.id != "" {
			notifiedAt = min(notifiedAt, g.notifyAt)
		}
		if g.until <= now {
			g.pause = min(max(2*g.pause, minPause), maxPause)
			g.until = now + g.pause
			if !c.isDisabled(promoteAgain) {
				c.notify(now, l, id)
			}
		}
		g.id = id
		l.overdue = append(l.overdue, g)
	}
	l.reserved = slices.DeleteFunc(l.reserved, func(g grant) bool {
		_, ok := known[g.id]
		return !ok || g.until <= now
	})
	return notifiedAt
}

// expireNext schedules the next grant check of a lane for the time at which its next reservation
// expires.
func (c *Core) expireNext(now int64, l *lane) {
	next := never
	for _, g := range l.overdue {
		next = min(next, g.until)
	}
	if len(l.overdue) > 0 && l.queue.stopped {
		l.queue.probedAt = min(max(l.queue.probedAt, now)+probeInterval, now+maxPause)
		next = l.queue.probedAt
	}
	if len(l.reserved) > 0 {
		next = min(next, max(l.reserved[0].until, l.checkedAt+minPause))
	}
	if next == never && l.full {
		next = now + lostReplyPause
	}
	if l.granted > len(l.reserved)+len(l.overdue) { // the core does not know the rest
		c.expiries.putBy(&l.expiry, min(next, now+lostReplyPause))
		return
	}
	c.expiries.remove(&l.expiry)
	if next < never {
		c.expiries.put(&l.expiry, next)
	}
}
