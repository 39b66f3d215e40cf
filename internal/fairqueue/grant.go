package fairqueue

import "slices"

// grants are the granted jobs of a lane that have not come.
type grants struct {
	granted int // how many, as Redis last said
	// reserved have permits reserved, the oldest first. A job that comes takes the oldest permits,
	// so as many as came are dropped from the head; while some are overdue, it is not known which
	// came.
	reserved []grant
	overdue  []grant // without permits; they are promoted again
	// expiry is when to ask Redis about them, checkedAt when that was done last.
	expiry    item[*lane]
	checkedAt int64
	full      bool // as many are granted as the lane's meters give at once
	parked    bool // the lane's queue takes no jobs
	// fromReport says that those that come according to Redis's next reply came before their server
	// reported its free slots.
	fromReport bool
}

// grant is a granted job. It is promoted at notifyAt, its permits exist from due on, and it is
// expected until then.
type grant struct {
	id                   string
	notifyAt, due, until int64
	pause                int64 // of an overdue job, until it is promoted again
}

const (
	minPause = 250_000
	maxPause = 30_000_000
	// probeInterval lies between two lanes of a stopped queue that Redis is asked about.
	probeInterval = 1_000_000
	// notifyStep: if several permits come within it, jobs granted in advance are promoted together.
	notifyStep = 5_000
	// minRepeat is how soon a job that is still being put back is promoted again.
	minRepeat = 10_000
	// lostReplyPause is how soon after a lost reply Redis is asked which jobs are granted.
	lostReplyPause = 1_000_000
)

// grant follows the job that a turn granted its permits.
func (c *Core) grant(now int64, l *lane, r Result) {
	if r.Outcome == Impossible {
		r.At, r.Until = now, now+minPause
	}
	// Where permits come one by one, several in a step, jobs that come early would fill their
	// workers' slots until they begin. The permits of a window come all at once.
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
	l.queue.owed++
	l.passedSince = 0
	l.reserved = append(l.reserved, grant{id: r.Job, notifyAt: at, due: r.At, until: r.Until})
	c.notify(at, l, r.Job)
	c.expireBy(l, r.Until)
}

// isLate reports whether a granted job of the lane has not come some time after its permits exist.
// Jobs that come take the oldest permits.
func (l *lane) isLate(now, after int64) bool {
	n := min(l.granted, len(l.reserved))
	return n > 0 && l.reserved[len(l.reserved)-n].due+after < now
}

// GrantedLanes returns the lanes with granted jobs that need a meter.
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

// setGranted takes how many of a lane's jobs are granted. If those are fewer than before, some
// came.
func (c *Core) setGranted(now int64, l *lane, granted int) {
	came := l.granted - granted
	l.setGranted(granted)
	if came > 0 {
		c.resumeQueue(now, l.queue)
		c.clearFull(l)
	}
	if granted == 0 {
		l.reserved, l.overdue = nil, nil
	}
	c.expireNext(now, l)
	if !l.waits() && l.granted == 0 && l.pendingTurns == 0 {
		c.expiries.remove(&l.expiry)
		delete(c.lanes, l.name)
	}
}

// Arrived says that a granted job of a lane came: the lane is not full any more, and its queue
// takes jobs. The lane's next turn tells how many have not come; a notification that is heard late
// would count a job twice.
func (c *Core) Arrived(now int64, name string) {
	if l := c.lanes[name]; l != nil {
		c.resumeQueue(now, l.queue)
		c.clearFull(l)
	}
}

// setFull has a lane be passed over, because as many of its jobs are granted as its meters give at
// once. Of a window it keeps its place.
func (c *Core) markFull(now int64, l *lane) {
	if l.waitsAt == nil || c.without(filling) {
		return
	}
	l.full = true
	for _, n := range l.needs {
		turns := int64(0)
		if h := n.heldBy(l); h != nil {
			turns = h.turns
		}
		if c.release(n.meter, l) {
			c.wake(n.meter, 0)
		}
		if n.perRefill > 1 {
			c.addHold(n, hold{l, n.cost, turns, now, now + n.returnTime(), true})
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

// isPassedOver reports whether a lane that waits cannot be granted for now.
func (l *lane) isPassedOver() bool { return l.full || l.slotWait.position > 0 }

// resume has a lane take turns again, unless it is passed over for another reason.
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

// notify has a job be promoted at a time, after those that are promoted at the same time.
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

// Promoted says what became of a job that ToPromote returned. Before it says that a job is done or
// gone, the caller has Redis forget the job, so Redis must be asked how many are granted then. A
// job that was granted so soon after its denial that it is still being put back is promoted again,
// at growing pauses, for as long as permits are reserved for it.
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
		c.changedFor(l)
		c.expireBy(l, now) // it may have come by itself, and be counted no more
	}
}

// ToExpire returns at most n lanes with granted jobs that should have come.
func (c *Core) ToExpire(now int64, n int) (lanes []string) {
	for len(lanes) < n && c.expiries.next() <= now {
		l := c.expiries[0].value
		lanes = append(lanes, l.name)
		c.expiries.put(&l.expiry, now+lostReplyPause) // in case the reply gets lost
	}
	return lanes
}

// Expired says how many granted jobs of a lane have not come, the IDs of those for which nothing is
// reserved any more, and whether any job waits. After a takeover the caller passes the IDs of all
// granted jobs: what this core has not granted it promotes at once.
func (c *Core) Expired(now int64, name string, granted int, overdue []string, waits bool) {
	l := c.lane(name)
	switch {
	case waits && !l.waits():
		c.enter(l, c.nextNumber())
	case !waits && l.waits():
		c.leave(l)
	}
	l.checkedAt = now
	came := granted < l.granted
	notifiedAt := c.setOverdue(now, l, overdue)
	if len(overdue) > 0 {
		c.changedFor(l) // what was reserved for them is free
	}
	if !came && notifiedAt < never {
		c.stop(now, l.queue, notifiedAt)
	}
	c.clearFull(l) // its meters may give more at once by now
	c.setGranted(now, l, granted)
	c.limitIfLate(now, l, notifiedAt < never)
	l.queue.discardReports(notifiedAt)
	l.fromReport = false
	c.reopen(now, l.queue)
}

// setOverdue sorts the granted jobs of a lane into those that may still come in time and overdue
// ones, which are promoted again at growing pauses. It returns when the first of those that just
// got overdue was promoted, never if none did.
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
			if !c.without(tellingAgain) {
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

// expireBy has Redis be asked about a lane no later than a time.
func (c *Core) expireBy(l *lane, at int64) {
	if l.expiry.position == 0 || at < l.expiry.key {
		c.expiries.put(&l.expiry, at)
	}
}

// expireNext has Redis be asked about a lane when the next of its granted jobs should have come.
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
	if l.granted > len(l.reserved)+len(l.overdue) { // some that this core does not know
		c.expireBy(l, min(next, now+lostReplyPause))
		return
	}
	c.expiries.remove(&l.expiry)
	if next < never {
		c.expiries.put(&l.expiry, next)
	}
}
