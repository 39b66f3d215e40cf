package fairqueue

import (
	"slices"
	"strings"
)

// A share is a part of a meter's turns: of all of them what a queue has, and of that what
// a fairness key within it has. Parts take turns by weight: each has a clock, its pass,
// that goes on by 1/weight with each of its turns, and the part whose pass is the least
// is next. One that nobody waited for does not save turns up: it begins where the others
// are.
type share struct {
	name string
	of   *share // what it is a part of; nil for all turns of a meter
	// place is among the parts of which a lane waits and can be called: its key is the pass.
	place place[*share]
	// parts by name; those that no lane needs any more are kept while they are ahead of
	// the others, so that nobody who comes and goes has more than his share. At so many
	// parts the rest is dropped.
	parts []*share
	full  int
	lanes int // that are of this share, wherever they wait
	// begun is the pass at which the part began its turn that had one last.
	begun int64
	line  line[*share] // parts of which a lane waits here and can be called
	queue line[*lane]  // of a key's share these lanes, the one served longest ago in front
}

// unit is how far a turn moves the pass of a share whose weight is 1.
const unit = 1 << 24

// stride is how far it moves another's.
func (c *Core) stride(weight int64) int64 {
	if c.without(weighing) {
		weight = 1
	}
	return max(1, unit/weight)
}

// part returns the part of a name, which it makes if there is none.
func (s *share) part(name string) *share {
	i, found := slices.BinarySearchFunc(s.parts, name, func(p *share, name string) int { return strings.Compare(p.name, name) })
	if found {
		return s.parts[i]
	}
	if len(s.parts) > 8 && len(s.parts) >= s.full {
		s.parts = slices.DeleteFunc(s.parts, func(p *share) bool { return p.lanes == 0 && p.place.key <= s.begun })
		s.full = 2 * len(s.parts)
		return s.part(name)
	}
	p := &share{name: name, of: s}
	p.place.of = p
	s.parts = slices.Insert(s.parts, i, p)
	return p
}

// share returns what a lane's queue and key have of a meter's turns, and counts the lane.
// Where the share had none it begins as if it had just had a turn: whoever comes goes
// behind those who wait, however many come.
func (c *Core) share(m *meter, l *lane, key int64) *share {
	queue := m.turns.part(l.queue.name)
	queue.place.rank = l.queue.rank
	c.begin(queue, l.queue.weight, key)
	s := queue.part(l.key)
	c.begin(s, l.weight, key)
	return s
}

func (c *Core) begin(s *share, weight, key int64) {
	if s.lanes++; s.lanes == 1 && !c.without(comingLast) {
		s.place.key, s.place.tie = max(s.place.key, s.of.begun+c.stride(weight)), key
	}
}

// drop says that a lane does not need it any more.
func (s *share) drop() {
	s.lanes--
	s.of.lanes--
}

// enter has a share stand among those of which a lane waits and can be called.
func (s *share) enter() {
	for ; s.of != nil && s.place.position == 0; s = s.of {
		s.of.line.put(&s.place, max(s.place.key, s.of.begun))
	}
}

// leave has it stand there no more if that was its last.
func (s *share) leave() {
	for ; s.of != nil && len(s.queue)+len(s.line) == 0; s = s.of {
		s.of.line.remove(&s.place)
	}
}

// first returns the lane whose turn is next; nil if none can be called.
func (s *share) first() *lane {
	for len(s.line) > 0 {
		s = s.line[0].of
	}
	if len(s.queue) == 0 {
		return nil
	}
	return s.queue[0].of
}

// hasPaid reports whether a lane's next turn counts already at the meter of a need.
func (l *lane) hasPaid(need int) bool { return l.paid&(1<<need) != 0 }

// returns reports whether it goes first there for that.
func (c *Core) returns(l *lane, need int) bool {
	return (l.hasPaid(need) || l.needs[need].ahead > 0) && !c.without(comingBack)
}

// dueKey is by what it stands among those that go first there: of several turns that count
// already, as before the first of them.
func (l *lane) dueKey(need int) int64 {
	if n := &l.needs[need]; n.ahead > 0 {
		return n.since
	}
	return l.number
}

// pay has the next turn of a lane count at the meter of a need.
func (c *Core) pay(l *lane, need int) {
	if l.hasPaid(need) {
		return
	}
	l.paid |= 1 << need
	c.charge(l, need)
	if l.at == l.needs[need].meter && l.turn.position > 0 {
		c.stand(l)
	}
}

// charge has one more turn of a lane count there.
func (c *Core) charge(l *lane, need int) {
	n, number := l.needs[need], c.number()
	c.countFor(n.share, c.stride(l.weight), number)
	c.countFor(n.share.of, c.stride(l.queue.weight), number)
	l.needs[need].last = number
	c.reorder(n)
}

func (c *Core) countFor(s *share, stride, number int64) {
	if s.place.rank == 0 { // else it goes by rank alone
		s.of.begun = max(s.place.key, s.of.begun)
		s.place.key = s.of.begun + stride
	}
	s.place.tie = number
	s.stand()
}

// payBack has a turn that came to nothing count for nobody.
func (c *Core) payBack(l *lane, needs []need, paid uint64) {
	for i, n := range needs {
		if paid&(1<<i) != 0 {
			c.refund(l, n)
		}
	}
}

// refund has one turn of a lane less count there.
func (c *Core) refund(l *lane, n need) {
	n.share.back(c.stride(l.weight))
	n.share.of.back(c.stride(l.queue.weight))
	c.reorder(n)
}

func (s *share) back(stride int64) {
	if s.place.rank == 0 {
		s.place.key -= stride
		s.of.begun = min(s.of.begun, s.place.key)
	}
	s.stand()
}

// stand has a share stand where it belongs, if it stands anywhere.
func (s *share) stand() {
	if s.place.position > 0 {
		s.of.line.put(&s.place, s.place.key)
	}
}

// reorder has a meter be looked at where another lane may be the next by now.
func (c *Core) reorder(n need) {
	if len(n.turns.parts) > 1 || len(n.share.of.parts) > 1 {
		c.wake(n.meter, 0)
	}
}

// before reports whether at a meter a lane's turn comes before another's.
func (c *Core) before(m *meter, a, b *lane) bool {
	i, j := a.index(m), b.index(m)
	s, t := a.needs[i].share, b.needs[j].share
	if s.of != t.of {
		s, t = s.of, t.of
	}
	switch {
	case s.place.rank != t.place.rank:
		return s.place.rank < t.place.rank
	case c.returns(a, i) != c.returns(b, j):
		return c.returns(a, i)
	case c.returns(a, i):
		return a.dueKey(i) < b.dueKey(j)
	case s == t:
		return a.number < b.number
	}
	return s.place.compare(&t.place) < 0
}
