package fairqueue

// calls is what of a lane is called and has not come.
type calls struct {
	// called is how many jobs, as Redis last said.
	called int
	// fresh have permits reserved, the oldest first. Whoever comes takes the
	// oldest permits, so as many as came are dropped from its head; while some are
	// late, nobody knows who came.
	fresh []call
	// late have none any more, and are told again.
	late []call
	// expiry is when Redis is to be asked about them, asked when it was.
	expiry place[*lane]
	asked  int64
	// full: no more can be called. parked: its queue takes nothing.
	full, parked bool
	// recount: those that Redis next says have come did so before their server said how many
	// slots it has free.
	recount bool
}

// call is a called job.
type call struct {
	id string
	// at is when it was told, due when its permits exist, till when it is waited for.
	at, due, till int64
	// pause is how long a late one was waited for since it was told again.
	pause int64
}

const (
	leastPause = 250_000
	mostPause  = 30_000_000
	// step: where several permits come in it, those called ahead are told together.
	step = 5_000
	// soonest is how long after a job was told it is told again, at least.
	soonest = 10_000
	// lostPause is how long after a lost answer Redis is asked what is called.
	lostPause = 1_000_000
)

// call follows the job that a turn called.
func (c *Core) call(now int64, l *lane, r Result) {
	if r.Outcome == Learn {
		r.At, r.Until = now, now+leastPause
	}
	at := r.At
	switch {
	case l.dense() && at > now: // told early, these would fill their workers' slots until they begin
		at += (step - at%step) % step
	case r.TakesEarly && !l.behind(now):
		at = now
	}
	c.mindWorkers(now, l, len(l.late) > 0)
	l.setCalled(l.called + 1)
	l.queue.owed++
	l.passed = 0
	l.fresh = append(l.fresh, call{id: r.Job, at: at, due: r.At, till: r.Until})
	c.tell(at, l, r.Job)
	c.expireBy(l, r.Until)
}

// behind reports whether workers are: a called job of the lane has not come that should
// have. Those that come take the oldest permits.
func (l *lane) behind(now int64) bool {
	n := min(l.called, len(l.fresh))
	return len(l.late) > 0 || n > 0 && l.fresh[len(l.fresh)-n].due+coming < now
}

// CalledAt is how many jobs are called that need each of some meters, and the lanes that
// they are of.
func (c *Core) GrantedAt(meters []string) map[string]Grants {
	at := make(map[string]Grants, len(meters))
	for _, meter := range meters {
		at[meter] = Grants{}
	}
	for name, l := range c.lanes {
		if l.called == 0 {
			continue
		}
		for _, meter := range l.meters() {
			if of, some := at[meter]; some {
				at[meter] = Grants{of.Jobs + l.called, append(of.Lanes, name)}
			}
		}
	}
	return at
}

// Callers are called jobs that need a meter.
type Grants struct {
	Jobs  int
	Lanes []string
}

// Knows reports whether jobs of a lane wait or are called, as far as the core knows.
func (c *Core) HasLane(name string) bool { return c.lanes[name] != nil }

// dense reports whether a lane's permits come one by one, several in a step. Where they
// come more rarely a step would save no call; and those of a window come all at once, so
// that a late one makes that of the next window late, too.
func (l *lane) dense() bool { return len(l.needs) > 0 && l.needs[0].refill < step }

// count takes how many of a lane's jobs are called. If that are fewer than were,
// some came.
func (c *Core) count(now int64, l *lane, called int) {
	came := l.called - called
	l.setCalled(called)
	if came > 0 {
		c.took(now, l.queue)
		c.unfill(l)
	}
	if called == 0 {
		l.fresh, l.late = nil, nil
	}
	c.expireNext(now, l)
	c.drop(l)
}

// Came says that a called job of a lane came: it is not full any more, and its
// queue takes jobs. How many have not come its next turn tells; a word that is
// heard late would count one twice.
func (c *Core) Arrived(now int64, name string) {
	if l := c.lanes[name]; l != nil {
		c.took(now, l.queue)
		c.unfill(l)
	}
}

// fill has a lane be passed over: as many are called as its meters give at once.
func (c *Core) fill(now int64, l *lane) {
	if l.at != nil && !c.without(filling) {
		l.full = true
		for _, n := range l.needs {
			turns := int64(0)
			if h := n.heldBy(l); h != nil {
				turns = h.turns
			}
			if c.release(n.meter, l) {
				c.wake(n.meter, 0)
			}
			if n.together > 1 {
				c.place(n, hold{l, n.cost, turns, now, now + n.comes(), true})
			}
		}
		l.step()
	}
}

// unfill has it be called again.
func (c *Core) unfill(l *lane) {
	if l.full {
		l.full = false
		c.standAgain(l)
	}
}

// standAgain has a lane that was passed over be called again, unless it is for another reason.
func (c *Core) standAgain(l *lane) {
	if !l.isPassedOver() {
		c.stand(l)
		c.wake(l.at, 0)
	}
}
