package fairqueue

import (
	"cmp"
	"maps"
	"slices"
)

// room is what is known of the worker slots of a queue.
type room struct {
	// careful is until when the queue gets no more permits than its servers have free slots.
	careful int64
	servers []*server
	// called are granted jobs that have not come, in the lanes calling; trying are turns
	// without an answer; owed are those granted jobs that take a slot which was said to be free.
	called, trying, owed int
	calling              map[*lane]struct{}
	// waiting are lanes that are passed over because no worker is free, by since when.
	waiting line[*lane]
}

// server is what an asynq server has last said of its worker slots.
type server struct {
	queues []*queue
	free   int   // slots
	every  int64 // how long it takes on average until one becomes free
	at     int64 // when it said so
}

const (
	// lateAfter is how long after its permits exist a granted job has come if a worker is free;
	// and carefulFor how long after one came later its queue gets only as many permits as
	// there are free slots.
	lateAfter  = 40_000
	carefulFor = 30_000_000
	// slotsLife is how long a server's word of its slots is believed: it is asked each second.
	slotsLife = 3_000_000
	// patience: a lane is granted a job without a free slot once it was passed over for so many
	// times as long as a slot takes to become free. The permits of that job wait for a slot,
	// so at most a fiftieth of the time is lost.
	patience = 50
	// readmitted is how many lanes are tried again for each free slot: some are not ready.
	readmitted = 8
)

func newRoom() room { return room{calling: map[*lane]struct{}{}} }

// Slots says how many worker slots a server has free for some queues, and how long it takes
// on average until it has one more, in microseconds. Granted jobs that have not come yet take
// theirs of these slots, so Redis is asked which have.
func (c *Core) SetSlots(now int64, name string, free int, every int64, queues []string) {
	s := c.servers[name]
	if s == nil {
		c.forgetServers(now)
		s = &server{}
		c.servers[name] = s
		for _, queue := range queues {
			q := c.queue(queue)
			s.queues, q.servers = append(s.queues, q), append(q.servers, s)
		}
	}
	s.free, s.every, s.at = free, every, now
	for _, q := range s.queues {
		q.owed = q.called
		for _, l := range slices.SortedFunc(maps.Keys(q.calling), func(a, b *lane) int { return cmp.Compare(a.name, b.name) }) {
			l.recount = true
			c.expireBy(l, now)
		}
		c.reopen(now, q)
	}
}

// forgetServers drops servers that have said nothing for long: they were stopped.
func (c *Core) forgetServers(now int64) {
	for name, s := range c.servers {
		if s.lives(now) {
			continue
		}
		delete(c.servers, name)
		for _, q := range s.queues {
			q.servers = slices.DeleteFunc(q.servers, func(o *server) bool { return o == s })
		}
	}
}

func (s *server) lives(now int64) bool { return now-s.at < slotsLife }

// Careful lists the queues whose servers are to say how many slots they have free.
func (c *Core) SlotsWanted(now int64) (queues []string) {
	for name, q := range c.queues {
		if q.isCareful(now) {
			queues = append(queues, name)
		}
	}
	slices.Sort(queues)
	return queues
}

// mindWorkers has a queue get no more permits than its servers have free slots, if one of the
// lane's granted jobs is late or has not come for long, and other queues could use its permits.
func (c *Core) mindWorkers(now int64, l *lane, late bool) {
	if n := min(l.called, len(l.fresh)); n > 0 {
		late = late || l.fresh[len(l.fresh)-n].due+lateAfter < now
	}
	if late && c.shares(l) {
		l.queue.careful = now + carefulFor
	}
}

// isCareful reports whether a queue gets no more permits than its servers have free slots. A
// queue whose lanes are passed over stays so for as long as that lasts.
func (q *queue) isCareful(now int64) bool { return now < q.careful || len(q.room.waiting) > 0 }

// shares reports whether lanes of other queues need one of the lane's meters. If none does,
// no other job could use what is reserved for its own.
func (c *Core) shares(l *lane) bool {
	return slices.ContainsFunc(l.meters(), func(name string) bool {
		m := c.meters[name]
		return m != nil && m.turns.part(l.queue.name).lanes < m.lanes
	})
}

// hasWorker reports whether a lane may have a turn: a worker is free for its job, or other
// queues do not need its meters, or it was passed over for long enough.
func (c *Core) hasWorker(now int64, l *lane) bool {
	q := l.queue
	if !q.isCareful(now) || q.hasRoom(now) || !c.shares(l) {
		return true
	}
	return l.passed > 0 && now >= l.passed+q.worthWaiting(now)
}

// hasRoom reports whether a worker is free for one more job of a queue, as far as its servers
// have said. If they have not, a job that is granted is tried.
func (q *queue) hasRoom(now int64) bool {
	said, room := false, -q.owed-q.trying
	others := map[*queue]bool{q: true}
	for _, s := range q.servers {
		if !s.lives(now) {
			continue
		}
		said, room = true, room+s.free
		for _, o := range s.queues {
			if !others[o] {
				others[o] = true
				room -= max(0, o.owed+o.trying-o.elsewhere(now, q))
			}
		}
	}
	return !said || room > 0
}

// doubtSlots has free slots count no more that servers had said before a job was told which has
// not come in time: a server may have died. One that lives says again what it has.
func (q *queue) doubtSlots(told int64) {
	for _, s := range q.servers {
		if told < never && s.at <= told {
			s.free = 0
		}
	}
}

// elsewhere is how many slots a queue has free at servers that do not serve another one.
func (q *queue) elsewhere(now int64, other *queue) (free int) {
	for _, s := range q.servers {
		if s.lives(now) && !slices.Contains(s.queues, other) {
			free += s.free
		}
	}
	return free
}

// passOverLane has a lane wait for a free worker. It keeps its place and holds nothing.
func (c *Core) passOverLane(now int64, l *lane) {
	q := l.queue
	q.careful = max(q.careful, now+carefulFor)
	if len(q.room.waiting) == 0 {
		c.closed = append(c.closed, q)
	}
	c.letGo(l)
	l.step()
	l.passed = cmp.Or(l.passed, now)
	q.room.waiting.put(&l.seat, l.passed)
}

// readmit has a lane wait for a free worker no more.
func (c *Core) readmit(l *lane) {
	if l.seat.position == 0 {
		return
	}
	q := l.queue
	q.room.waiting.remove(&l.seat)
	if len(q.room.waiting) == 0 {
		c.closed = slices.DeleteFunc(c.closed, func(o *queue) bool { return o == q })
	}
	if !l.full {
		c.standAgain(l)
	}
}

// isPassedOver reports whether a lane that waits cannot be called for now.
func (l *lane) isPassedOver() bool { return l.full || l.seat.position > 0 }

// reopen has lanes of a queue take turns again if workers are free for them.
func (c *Core) reopen(now int64, q *queue) {
	for range readmitted {
		if len(q.room.waiting) == 0 || !q.hasRoom(now) {
			return
		}
		c.readmit(q.room.waiting[0].of)
	}
}

// reopenDue does that for lanes that were passed over for long enough, and for those of whose
// queue's slots nothing has been said for long.
func (c *Core) reopenDue(now int64) {
	for _, q := range slices.Clone(c.closed) {
		for len(q.room.waiting) > 0 && now >= q.reopens(now) {
			c.readmit(q.room.waiting[0].of)
		}
	}
}

// reopens is when the next lane of a queue has a turn without a free slot.
func (q *queue) reopens(now int64) int64 {
	last := int64(0)
	for _, s := range q.servers {
		last = max(last, s.at+slotsLife)
	}
	return min(last, q.room.waiting[0].key+q.worthWaiting(now))
}

// worthWaiting is how long a lane is passed over before it has a turn although no worker is free.
func (q *queue) worthWaiting(now int64) int64 {
	every := never / patience / 2
	for _, s := range q.servers {
		if s.lives(now) && s.every > 0 {
			every = min(every, s.every)
		}
	}
	return patience * every
}

// setCalled notes how many jobs of a lane are granted and have not come.
func (l *lane) setCalled(n int) {
	q := l.queue
	if came := l.called - n; l.recount && came > 0 {
		q.owed = max(0, q.owed-came)
	}
	q.called += n - l.called
	l.called = n
	if n > 0 {
		q.calling[l] = struct{}{}
	} else {
		delete(q.calling, l)
	}
}
