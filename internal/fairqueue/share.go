package fairqueue

// share is a node of a meter's two-level stride scheduler: below the root are queues, below each of
// them fairness keys. A share's pass advances by unit/weight with each of its turns, and the child
// with the smallest pass is next. A share without lanes does not save up turns: when it gets a lane
// again, it starts behind the pass of the child served last.
type share struct {
	name   string
	parent *share // nil for the root
	// item is its entry in parent.children. item.key is its pass.
	item       item[*share]
	parts      map[string]*share // all children by name
	lanes      int               // number of its lanes, including those that wait at other meters
	servedPass int64             // virtual time: pass of the child served last
	children   priorityQueue[*share]
	queue      priorityQueue[*lane] // of a fairness key: its lanes that wait here and can be granted
}

const unit = 1 << 24

func (c *Core) stride(weight int64) int64 {
	if c.isDisabled(weighing) {
		weight = 1
	}
	return max(1, unit/weight)
}

// part returns the child of a name, which it makes if there is none.
func (s *share) part(name string) *share {
	p := s.parts[name]
	if p == nil {
		p = &share{name: name, parent: s, parts: map[string]*share{}}
		p.item.value = p
		s.parts[name] = p
	}
	return p
}

// removeLane removes a lane from a share, and then the share if it has no other lane. The pass of a
// removed share need not be remembered: it is at most one stride ahead of its parent's servedPass,
// where the share would start again.
func (s *share) removeLane() {
	for ; s.parent != nil; s = s.parent {
		if s.lanes--; s.lanes == 0 {
			delete(s.parent.parts, s.name)
		}
	}
}

// share returns the share of the lane's queue and fairness key at meter m, and adds the lane to it.
// An empty share starts one stride behind the child served last, so that new lanes queue up behind
// waiting ones. key orders shares with the same pass.
func (c *Core) share(m *meter, l *lane, key int64) *share {
	queue := m.shares.part(l.queue.name)
	queue.item.rank = l.queue.rank
	c.addLane(queue, l.queue.weight, key)
	s := queue.part(l.fairKey)
	c.addLane(s, l.weight, key)
	return s
}

func (c *Core) addLane(s *share, weight, key int64) {
	if s.lanes++; s.lanes == 1 && !c.isDisabled(comingLast) {
		s.item.key, s.item.tie = max(s.item.key, s.parent.servedPass+c.stride(weight)), key
	}
}

// enter adds a share to its parent's children, the parent to its own parent's, and so on to the
// root.
func (s *share) enter() {
	for ; s.parent != nil && s.item.position == 0; s = s.parent {
		s.parent.children.put(&s.item, max(s.item.key, s.parent.servedPass))
	}
}

// leave undoes enter for a share if none of its lanes can be granted any more.
func (s *share) leave() {
	for ; s.parent != nil && len(s.queue)+len(s.children) == 0; s = s.parent {
		s.parent.children.remove(&s.item)
	}
}

// first returns the lane whose turn is next; nil if none can be granted.
func (s *share) first() *lane {
	for len(s.children) > 0 {
		s = s.children[0].value
	}
	if len(s.queue) == 0 {
		return nil
	}
	return s.queue[0].value
}

// hasPriority reports whether a lane has priority at the meter of l.needs[need], because it was
// already charged a turn there.
func (c *Core) hasPriority(l *lane, need int) bool {
	return l.needs[need].paid > 0 && !c.isDisabled(comingBack)
}

// pay charges the lane for its next turn at the meter of l.needs[need], if it is not charged yet.
func (c *Core) pay(l *lane, need int) {
	if l.needs[need].paid == 0 {
		c.payOnce(l, need)
	}
}

// payOnce charges the lane for one more turn at the meter of l.needs[need].
func (c *Core) payOnce(l *lane, need int) {
	n := &l.needs[need]
	if n.paid++; n.paid == 1 {
		n.paidSince = l.lastTurn
	}
	c.charge(l, need)
	if l.waitsAt == n.meter && l.item.position > 0 {
		c.enqueue(l)
	}
}

// charge adds one stride to the lane's shares at the meter, and refund subtracts it. The pass of a
// strict queue does not change, because strict queues are ordered by rank only.
func (c *Core) charge(l *lane, need int) {
	n, number := &l.needs[need], c.nextNumber()
	for s, weight := n.share, l.weight; s.parent != nil; s, weight = s.parent, l.queue.weight {
		if s.item.rank == 0 {
			s.parent.servedPass = max(s.item.key, s.parent.servedPass)
			s.item.key = s.parent.servedPass + c.stride(weight)
		}
		s.item.tie = number
		s.reposition()
	}
	n.chargedAt = number
	c.reorder(n)
}

func (c *Core) refund(l *lane, n *need) {
	for s, weight := n.share, l.weight; s.parent != nil; s, weight = s.parent, l.queue.weight {
		if s.item.rank == 0 {
			s.item.key -= c.stride(weight)
			s.parent.servedPass = min(s.parent.servedPass, s.item.key)
		}
		s.reposition()
	}
	c.reorder(n)
}

func (s *share) reposition() {
	if s.item.position > 0 {
		s.parent.children.put(&s.item, s.item.key)
	}
}

// reorder wakes the meter of n if its next lane may have changed.
func (c *Core) reorder(n *need) {
	if len(n.shares.parts) > 1 || len(n.share.parent.parts) > 1 {
		c.wake(n.meter, 0)
	}
}

// before reports whether a's turn at a meter comes before b's.
func (c *Core) before(m *meter, a, b *lane) bool {
	i, j := a.index(m), b.index(m)
	s, t := a.needs[i].share, b.needs[j].share
	if s.parent != t.parent {
		s, t = s.parent, t.parent
	}
	switch {
	case s.item.rank != t.item.rank:
		return s.item.rank < t.item.rank
	case c.hasPriority(a, i) != c.hasPriority(b, j):
		return c.hasPriority(a, i)
	case c.hasPriority(a, i):
		return a.needs[i].paidSince < b.needs[j].paidSince
	case s == t:
		return a.lastTurn < b.lastTurn
	}
	return s.item.compare(&t.item) < 0
}
