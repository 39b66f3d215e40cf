package fairqueue

import "slices"

// grant is a granted job. It is promoted at notifyAt, its permits are available from due, and its
// reservation ends at until.
type grant struct {
	id                   string
	notifyAt, due, until int64
	pause                int64 // backoff before the next promotion; 0 until the job is overdue
}

// GrantedJob is a granted job that must be moved to the head of its queue.
type GrantedJob struct{ Queue, ID, Lane string }

// State is the state of a granted job after an attempt to move it to the head of its queue.
type State string

const (
	StateUnknown State = ""        // the queues could not be reached
	StateMoved   State = "moved"   // it was put back, and is now at the head of its queue
	StatePending State = "pending" // it was in its queue already
	StateActive  State = "active"  // a worker has it
	StateDone    State = "done"    // it no longer waits for permits: it was completed, archived or enqueued again
	StateGone    State = "gone"    // there is no such job
)

const (
	// minPause and maxPause bound the pauses between promotions of an overdue job.
	minPause = 250_000
	maxPause = 30_000_000
	// probeInterval is the interval at which the lanes of a stopped queue are checked in Redis, one
	// at a time.
	probeInterval = 1_000_000
	// A meter is dense if it frees the permits of a job in less than notifyStep.
	notifyStep = 5_000
	// A job that was active when it was promoted is promoted again after minRepeat or later.
	minRepeat = 10_000
	// lostReplyPause is the time from a lost reply until Redis is asked which jobs are granted.
	lostReplyPause = 1_000_000
)

// grant records a granted job and schedules its promotion and the check of its reservation.
func (c *Core) grant(now int64, l *lane, r *Result) {
	if r.Outcome == Impossible {
		r.At, r.Until = now, now+minPause
	}
	// If each job of a dense meter were promoted early, the jobs would occupy many worker slots
	// until they may start. So promotion times are rounded up to multiples of notifyStep.
	dense := len(l.needs) > 0 && l.needs[0].Refill < notifyStep
	at := r.At
	switch {
	case dense && at > now:
		at += (notifyStep - at%notifyStep) % notifyStep
	case r.TakesEarly && len(l.overdue) == 0 && !l.isLate(now, travelTime):
		at = now
	}
	c.limitIfLate(now, l, len(l.overdue) > 0)
	l.storeGranted(l.granted + 1)
	l.queue.slotsInFlight++
	l.queue.grantedAt = now
	l.slotWaitSince = 0
	l.reserved = append(l.reserved, grant{id: r.Job, notifyAt: at, due: r.At, until: r.Until})
	c.notify(at, l, r.Job)
	c.expiries.putBy(&l.expiry, r.Until)
}

// isLate reports whether a granted job has not arrived although its permits have been available for
// more than `after` microseconds. Arriving jobs take the oldest permits.
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

// setGranted stores the number of granted jobs as reported by Redis, and schedules the next check
// of the lane's grants for the time at which its next reservation expires. A smaller number than
// before means that jobs have arrived.
func (c *Core) setGranted(now int64, l *lane, granted int) {
	arrived := granted < l.granted
	l.storeGranted(granted)
	if arrived {
		c.arrived(now, l)
	}
	if granted == 0 {
		l.reserved, l.overdue = nil, nil
	}
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
	if granted > len(l.reserved)+len(l.overdue) { // the core does not know the other granted jobs
		c.expiries.putBy(&l.expiry, min(next, now+lostReplyPause))
		return
	}
	if l.expiry.remove(); next < never {
		c.expiries.put(&l.expiry, next)
	}
	if l.at == nil && granted == 0 && l.pendingTurns == 0 {
		l.expiry.remove()
		delete(c.lanes, l.name)
	}
}

// Arrived records a JobArrived notification: the lane is not full any more, and its queue takes
// jobs. Arrived does not change the number of granted jobs, because the next reply of Redis has the
// number.
func (c *Core) Arrived(now int64, name string) {
	if l := c.lanes[name]; l != nil {
		c.arrived(now, l)
	}
}

// ArrivedLate records that a granted job arrived more than arrivalTime after its permits were available.
// Redis says so, because a lane with one grant at a time shows it only until the job arrives.
func (c *Core) ArrivedLate(now int64, name string) {
	if l := c.lanes[name]; l != nil {
		c.limitIfLate(now, l, true)
	}
}

// arrived records that a worker took a granted job. A stopped queue gets turns again.
func (c *Core) arrived(now int64, l *lane) {
	q := l.queue
	if q.arrivedAt = now; q.stopped {
		for q.stopped = false; len(q.waiting) > 0; {
			c.stopWaiting(q.waiting[0].value)
		}
	}
	c.clearFull(l)
}

// markFull stops giving turns to a lane that has as many granted jobs as its meters allow at once.
// At windows, the lane holds permits for its paid turns, so that it does not lose these turns.
func (c *Core) markFull(now int64, l *lane) {
	if l.at == nil || c.isDisabled(filling) {
		return
	}
	l.full = true
	for _, n := range l.needs {
		c.release(n)
		if n.PerRefill > 1 {
			c.setHold(n, hold{now, now + n.returnTime(), 0}, now+n.returnTime())
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

// notification is a granted job that is to be promoted at a time.
type notification struct {
	at   int64
	lane *lane
	id   string
}

// notify schedules the promotion of a job, after those already scheduled for the same time.
func (c *Core) notify(at int64, l *lane, id string) {
	i := len(c.notifications)
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
		c.arrived(now, l)
		if i := slices.IndexFunc(l.reserved, func(g grant) bool { return g.id == job.ID }); i >= 0 {
			if at := now + max(minRepeat, now-l.reserved[i].notifyAt); at < l.reserved[i].until {
				c.notify(at, l, job.ID)
			}
		}
	case StateDone, StateGone:
		c.changedFor(now, l)
		c.expiries.putBy(&l.expiry, now)
	}
}

func (c *Core) changedFor(now int64, l *lane) {
	for _, name := range Meters(l.name) {
		c.Changed(now, name)
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
	if waits {
		c.enter(l)
	} else {
		c.leave(l)
	}
	l.checkedAt = now
	notifiedAt := c.setOverdue(now, l, overdue)
	if len(overdue) > 0 {
		c.changedFor(now, l) // what was reserved for them is free
	}
	// If a promoted job did not arrive and no other job of the queue has arrived since, the queue
	// is probably paused or has no server.
	if q := l.queue; granted >= l.granted && notifiedAt < never && !q.stopped && q.arrivedAt < notifiedAt && !c.isDisabled(passingOver) {
		q.stopped, q.probedAt = true, now
	}
	c.clearFull(l) // its meters may give more at once by now
	c.setGranted(now, l, granted)
	c.limitIfLate(now, l, notifiedAt < never)
	c.reopen(now, l.queue)
}

// setOverdue promotes jobs whose reservation has expired again, at growing pauses. It returns the
// earliest past promotion of a job that became overdue in this call, or never.
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
