package fairqueue

import "slices"

// Expiring returns at most n lanes some of whose called jobs should have come.
func (c *Core) ToExpire(now int64, n int) (lanes []string) {
	for len(lanes) < n {
		l, ok := c.expiries.due(now)
		if !ok {
			break
		}
		lanes = append(lanes, l.name)
		c.expiries.put(&l.expiry, now+lostPause) // in case the answer gets lost
	}
	return lanes
}

// Expired says what of a lane is called: how many jobs have not come, the IDs
// of those for which nothing is reserved any more, and whether any job waits.
// After a takeover the IDs of all called jobs are to be passed: what this core
// has not called it tells at once.
func (c *Core) Expired(now int64, name string, left int, overdue []string, waits bool) {
	l := c.lane(name)
	switch {
	case waits && !l.waits():
		c.enter(l, c.number())
	case !waits && l.waits():
		c.leave(l)
	}
	l.asked = now
	came := left < l.called
	told := c.overdue(now, l, overdue)
	if len(overdue) > 0 {
		c.changedFor(l) // what was reserved for them is free
	}
	if !came && told < never {
		c.stop(now, l.queue, told)
	}
	c.unfill(l) // its meters may give more at once by now
	c.count(now, l, left)
	c.mindWorkers(now, l, told < never)
	l.queue.doubtSlots(told)
	l.recount = false
	c.reopen(now, l.queue)
}

// overdue sorts the called jobs of a lane into those that may still come in time
// and those that are late, which are told again at growing pauses. It returns
// when the first of those that just got late was told, never if none did.
func (c *Core) overdue(now int64, l *lane, ids []string) (told int64) {
	known := map[string]call{}
	for _, job := range slices.Concat(l.late, l.fresh) {
		known[job.id] = job
	}
	l.late = nil
	told = never
	for _, id := range ids {
		job := known[id]
		delete(known, id)
		if job.pause == 0 && job.id != "" {
			told = min(told, job.at)
		}
		if job.till <= now {
			job.pause = min(max(2*job.pause, leastPause), mostPause)
			job.till = now + job.pause
			if !c.without(tellingAgain) {
				c.tell(now, l, id)
			}
		}
		job.id = id
		l.late = append(l.late, job)
	}
	l.fresh = slices.DeleteFunc(l.fresh, func(job call) bool {
		_, ok := known[job.id]
		return !ok || job.till <= now
	})
	return told
}

// expireBy has Redis be asked about a lane no later than a time.
func (c *Core) expireBy(l *lane, at int64) {
	if l.expiry.position == 0 || at < l.expiry.key {
		c.expiries.put(&l.expiry, at)
	}
}

// expireNext has Redis be asked about a lane when the next of its called jobs
// should have come.
func (c *Core) expireNext(now int64, l *lane) {
	next := never
	for _, job := range l.late {
		next = min(next, job.till)
	}
	if len(l.late) > 0 && l.queue.stopped {
		next = l.queue.probe(now)
	}
	if len(l.fresh) > 0 {
		next = min(next, max(l.fresh[0].till, l.asked+leastPause))
	}
	if next == never && l.full {
		next = now + lostPause
	}
	if l.called > len(l.fresh)+len(l.late) { // some that this core does not know
		c.expireBy(l, min(next, now+lostPause))
		return
	}
	c.expiries.remove(&l.expiry)
	if next < never {
		c.expiries.put(&l.expiry, next)
	}
}
