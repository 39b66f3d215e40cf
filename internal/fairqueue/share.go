package fairqueue

// share is a node of a meter's two-level stride scheduler: below the root are queues, below each of
// them fairness keys. A share's pass advances by unit/weight with each of its turns, and the child
// with the smallest pass is next. A share without lanes does not save up turns: when it gets a lane
// again, it starts behind the pass of the child served last.
type share struct {
	name   string
	parent *share // nil for the root
	// item is the share's entry in parent.children. item.key is the share's pass.
	item       item[*share]
	parts      map[string]*share // all children by name
	lanes      int               // number of its lanes, including those that wait at other meters
	servedPass int64             // pass of the child served last
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

// part returns the child of a name, with one more lane. An empty child starts one stride behind the
// child served last, so that new lanes queue up behind waiting ones. number orders children with
// the same pass.
func (c *Core) part(parent *share, name string, weight, number int64) *share {
	s := parent.parts[name]
	if s == nil {
		s = &share{name: name, parent: parent, parts: map[string]*share{}}
		s.item.value = s
		parent.parts[name] = s
	}
	if s.lanes++; s.lanes == 1 && !c.isDisabled(comingLast) {
		s.item.key, s.item.tie = max(s.item.key, parent.servedPass+c.stride(weight)), number
	}
	return s
}

// removeLane removes a lane from a share, and then the share if it has no other lane.
func (s *share) removeLane() {
	for ; s.parent != nil; s = s.parent {
		if s.lanes--; s.lanes == 0 {
			delete(s.parent.parts, s.name)
		}
	}
}

// enter adds a share to its parent's children, the parent to its own parent's, and so on to the
// root.
func (s *share) enter() {
	for ; s.parent != nil && s.item.in == nil; s = s.parent {
		s.parent.children.put(&s.item, max(s.item.key, s.parent.servedPass))
	}
}

// leave undoes enter for a share if none of its lanes can be granted any more.
func (s *share) leave() {
	for ; s.parent != nil && len(s.queue)+len(s.children) == 0; s = s.parent {
		s.item.remove()
	}
}

// hasPriority reports whether a lane has priority at a meter, because it was already charged a turn
// there.
func (c *Core) hasPriority(n *need) bool { return n.paid > 0 && !c.isDisabled(comingBack) }

// pay charges the lane for its next turn at a meter, if it is not charged yet.
func (c *Core) pay(n *need) {
	if n.paid == 0 {
		c.payOnce(n)
	}
}

// payOnce charges the lane for one more turn: it adds one stride to the lane's shares at the meter.
// The pass of a strict queue does not change, because strict queues are ordered by rank only.
func (c *Core) payOnce(n *need) {
	if n.paid++; n.paid == 1 {
		n.paidPosition = n.lane.position
	}
	n.chargedAt = c.nextNumber()
	for s, weight := n.share, n.lane.weight; s.parent != nil; s, weight = s.parent, n.lane.queue.weight {
		if s.item.rank == 0 {
			s.parent.servedPass = max(s.item.key, s.parent.servedPass)
			s.item.key = s.parent.servedPass + c.stride(weight)
		}
		s.item.tie = n.chargedAt
		s.reposition()
	}
	c.reorder(n)
	if n.lane.at == n && n.lane.item.in != nil {
		c.enqueue(n.lane)
	}
}

// refund subtracts what payOnce has added to the shares.
func (c *Core) refund(n *need) {
	for s, weight := n.share, n.lane.weight; s.parent != nil; s, weight = s.parent, n.lane.queue.weight {
		if s.item.rank == 0 {
			s.item.key -= c.stride(weight)
			s.parent.servedPass = min(s.parent.servedPass, s.item.key)
		}
		s.reposition()
	}
	c.reorder(n)
}

func (s *share) reposition() {
	if s.item.in != nil {
		s.item.in.put(&s.item, s.item.key)
	}
}

// reorder wakes a meter if its next lane may have changed.
func (c *Core) reorder(n *need) {
	if len(n.shares.parts) > 1 || len(n.share.parent.parts) > 1 {
		c.wake(n.meter, 0)
	}
}

// siblings returns the shares of two lanes at a meter that decide which lane goes first: those of
// their fairness keys, or of their queues if these differ.
func siblings(a, b *need) (s, t *share) {
	if a.share.parent != b.share.parent {
		return a.share.parent, b.share.parent
	}
	return a.share, b.share
}

// before reports whether a's turn at a meter comes before b's.
func (c *Core) before(a, b *need) bool {
	s, t := siblings(a, b)
	switch {
	case s.item.rank != t.item.rank:
		return s.item.rank < t.item.rank
	case c.hasPriority(a) != c.hasPriority(b):
		return c.hasPriority(a)
	case c.hasPriority(a):
		return a.paidPosition < b.paidPosition
	case s == t:
		return a.lane.position < b.lane.position
	}
	return s.item.compare(&t.item) < 0
}
