package fairqueue

import "strings"

// lane is a queue and a set of meters, with jobs that wait or are called.
type lane struct {
	name  string
	queue *queue
	// key is the one for which jobs of its queue take turns by weight, if any.
	key    string
	weight int64
	// number is its key, that of its last turn or of its making, and turn its place in the
	// queue of the meter at which it waits.
	number int64
	turn   place[*lane]
	// at is the meter at which it waits; nil if no job of it waits, or its queue
	// takes nothing.
	at    *meter
	needs []need
	// looked says that its needs are its first job's. Before it had a turn all
	// that is known is its meters.
	looked bool
	// holds is how many meters it holds, trying how many of its turns wait for
	// their answers.
	holds, trying int
	// paid are those of its needs, by bit, at whose meters its next turn counts already: it
	// had come there, and then the lane had to wait elsewhere.
	paid uint64
	in   *line[*lane] // where it stands
	// seat is its place among the lanes of its queue that are passed over because no worker is
	// free for them, and passed is since when they are: since the last job was granted.
	seat   place[*lane]
	passed int64
	calls
}

// need is what the first job of a lane needs of a meter.
type need struct {
	*meter
	share        *share // the lane's of it
	cost, refill int64
	together     int64
	// ahead is how many more turns count already at the meter than the next one, and last the
	// number of the last that does; since is the lane's key when the first of them was counted.
	ahead, last, since int64
	// extra is for how many turns more is held than the lane can use until the meter gives
	// more: for those that it missed as it had to wait there, since a time.
	extra, missing int64
	// asked is for how many permits, those included that were held, the meter was
	// last asked, and how many turns it had given by then.
	asked, given int64
}

// sure reports whether what is known of a meter is what it said to this need:
// nobody took anything since.
func (n *need) sure(total int64) bool { return n.asked == total && n.given == n.meter.given }

// Made says that a lane got its first job. A lane that is made again, or named
// twice, keeps its turn. Lanes are to be named in the order of their numbers.
func (c *Core) AddLane(name string, number int64) {
	c.seq = max(c.seq, number)
	if l := c.lane(name); !l.waits() {
		c.enter(l, c.number())
	}
}

// Waits adds a lane that has been looked at. The lane waits at the meter that is ready last for its
// first job, or, if all its meters are ready, at one where another lane waits already. It holds its
// other meters as if it had had its turn there.
func (c *Core) AddReadLane(now int64, name string, number int64, needs []Need) {
	c.AddLane(name, number)
	l := c.lane(name)
	if len(needs) != len(l.needs) {
		return
	}
	l.looked = true
	x := wait{meter: l.at, bound: bound{at: now}}
	for i, n := range needs {
		own := &l.needs[i]
		own.cost, own.refill, own.together = n.Cost, n.Refill, n.PerRefill
		own.tell(now, 0, n)
		if n.Ready > x.at {
			x = wait{meter: own.meter, bound: bound{at: n.Ready, unknown: !n.Known, blocked: n.Blocked}}
		}
	}
	if x.meter == l.at {
		return
	}
	c.move(now, l, x)
	for i := range l.needs {
		if m := l.needs[i].meter; m != x.meter && c.ready(m, l, now).at <= now {
			c.hold(l, m, x, now)
		}
	}
}

// number is the number of a turn, above all that were given.
func (c *Core) number() int64 {
	c.seq++
	return c.seq
}

// lane returns the lane of a name, which it makes if there is none.
func (c *Core) lane(name string) *lane {
	l := c.lanes[name]
	if l == nil {
		queue, _, _ := strings.Cut(name, "\n")
		l = &lane{name: name, queue: c.queue(queue)}
		l.key, l.weight = FairnessKey(name)
		l.turn.of, l.expiry.of, l.seat.of = l, l, l
		c.lanes[name] = l
	}
	return l
}

// meters are the names of its meters.
func (l *lane) meters() []string { return Meters(l.name) }

// waits reports whether a job of the lane waits.
func (l *lane) waits() bool { return l.at != nil || l.parked }

// enter has a lane wait. It joins where somebody waits already, whom it may not
// pass, or else where it is likely to wait longest.
func (c *Core) enter(l *lane, key int64) {
	if l.queue.stopped {
		l.park(key)
		return
	}
	l.looked = false
	names := l.meters()
	l.needs = make([]need, len(names))
	var join *meter
	for i, name := range names {
		m := c.meter(name)
		l.needs[i] = need{meter: m, cost: 1, share: c.share(m, l, key)}
		m.lanes++
		if len(names) > 1 {
			m.wide++
		}
		c.touch(m)
		if join == nil || m.after(join) {
			join = m
		}
	}
	c.join(l, join, key)
	c.wake(join, min(join.ready(1).at, join.askAt()))
}

// after reports whether a lane that comes has to wait longer at m than at o.
func (m *meter) after(o *meter) bool {
	if (m.waiting > 0) != (o.waiting > 0) {
		return m.waiting > 0
	}
	return m.ready(1).at > o.ready(1).at
}

// leave has a lane wait nowhere.
func (c *Core) leave(l *lane) {
	l.parked = false
	if l.at == nil {
		return
	}
	c.letGo(l)
	c.readmit(l)
	for i := range l.needs {
		for ; l.needs[i].ahead > 0; l.needs[i].ahead-- {
			c.refund(l, l.needs[i])
		}
	}
	c.payBack(l, l.needs, l.paid)
	c.part(l)
	for _, n := range l.needs {
		n.lanes--
		n.share.drop()
		if len(l.needs) > 1 {
			n.wide--
		}
		c.touch(n.meter)
	}
	l.needs, l.full, l.paid = nil, false, 0
}

// stand has a lane stand among those that wait at its meter and can be called, by its key.
func (c *Core) stand(l *lane) {
	l.step()
	l.turn.rank = l.queue.rank
	key := l.number
	if i := l.index(l.at); c.returns(l, i) {
		l.in, key = &l.at.dues, l.dueKey(i)
	} else {
		l.in = &l.needs[i].share.queue
		defer l.needs[i].share.enter()
	}
	l.in.put(&l.turn, key)
}

// step has it stand there no more.
func (l *lane) step() {
	if l.turn.position > 0 {
		l.in.remove(&l.turn)
		l.need(l.at).share.leave()
	}
}

// join has a lane wait at a meter.
func (c *Core) join(l *lane, m *meter, key int64) {
	l.at = m
	m.waiting++
	l.number = key
	c.stand(l)
	c.touch(m)
}

// part has it not wait there any more.
func (c *Core) part(l *lane) {
	l.step()
	l.at.waiting--
	c.touch(l.at)
	l.at = nil
}

// drop forgets a lane of which nothing waits or is called.
func (c *Core) drop(l *lane) {
	if !l.waits() && l.called == 0 && l.trying == 0 {
		c.expiries.remove(&l.expiry)
		delete(c.lanes, l.name)
	}
}
