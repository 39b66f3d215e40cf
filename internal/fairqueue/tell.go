package fairqueue

import "slices"

// telling is a called job that is to be told.
type telling struct {
	at   int64
	lane *lane
	id   string
}

// tell has a job be told at a time, after those that are told at the same time.
// Mostly that is the last place.
func (c *Core) tell(at int64, l *lane, id string) {
	i := len(c.tells)
	for i > 0 && c.tells[i-1].at > at {
		i--
	}
	c.tells = slices.Insert(c.tells, i, telling{at, l, id})
}

// Tell returns at most n called jobs that are to be told now.
func (c *Core) ToPromote(now int64, n int) (jobs []GrantedJob) {
	for len(jobs) < min(n, len(c.tells)) && c.tells[len(jobs)].at <= now {
		t := c.tells[len(jobs)]
		jobs = append(jobs, GrantedJob{Queue: t.lane.queue.name, ID: t.id, Lane: t.lane.name})
	}
	c.tells = slices.Delete(c.tells, 0, len(jobs))
	return jobs
}

// Fate says what became of a job that Tell returned. One that is done or gone is
// not called any more: before it says so, the caller has Redis forget it. How many
// are called then Redis is to be asked.
func (c *Core) Promoted(now int64, job GrantedJob, fate State) {
	l := c.lanes[job.Lane]
	if l == nil {
		return
	}
	switch fate {
	case StateActive:
		c.took(now, l.queue)
		c.tellPutBack(now, l, job.ID)
	case StateDone, StateGone:
		c.changedFor(l)
		c.expireBy(l, now) // it may have come by itself, and be counted no more
	}
}

// tellPutBack tells a job again that was called so soon after its denial that it is
// still being put back: at growing pauses, for as long as permits are reserved for it.
func (c *Core) tellPutBack(now int64, l *lane, id string) {
	i := slices.IndexFunc(l.fresh, func(k call) bool { return k.id == id })
	if i < 0 {
		return
	}
	if at := now + max(soonest, now-l.fresh[i].at); at < l.fresh[i].till {
		c.tell(at, l, id)
	}
}
