package fairqueue

import (
	"maps"
	"slices"
	"strings"
)

// meter is what is known of one limit and key, and the lanes that wait there.
type meter struct {
	name string
	// shares has the lanes that wait here and can be granted. returning has those of them whose
	// turn had come before they had to wait elsewhere: they go first, by their last turn.
	shares    share
	returning sorted[*lane]
	// waiting counts the lanes that wait here, lanes all that need the meter, and multiLimit those
	// of them that need other meters too.
	waiting, lanes, multiLimit int
	holds                      []hold
	extraTurns                 []extraTurn // since the last turn
	bounds
	grants int64 // turns that it gave, at whatever meter the lanes waited
	slotStats
	due item[*meter] // when it is to be served
	batchSize
	published int // what Sharing last said
	touched   bool
}

// meter returns the meter of a name, which it makes if there is none.
func (c *Core) meter(name string) *meter {
	m := c.meters[name]
	if m == nil {
		m = &meter{name: name, published: -1, batchSize: batchSize{left: 1, step: 1}}
		m.bounds = bounds{trustTime: minTrust, exact: c.exact}
		m.due.value = m
		c.meters[name] = m
	}
	return m
}

// Changed says that what a meter said of its readiness is void.
func (c *Core) Changed(name string) {
	if m := c.meters[name]; m != nil {
		m.bounds = bounds{trustTime: minTrust, exact: c.exact}
		m.grants++
		m.freed = true
		c.wake(m, 0)
	}
}

// ChangedLimit says the same of all meters of a limit, and ChangedAll of all meters.
func (c *Core) ChangedLimit(limit string) { c.changed(limit + "|") }
func (c *Core) ChangedAll()               { c.changed("") }

// changed goes by name, so that the same calls give the same turns.
func (c *Core) changed(prefix string) {
	for _, name := range slices.Sorted(maps.Keys(c.meters)) {
		if strings.HasPrefix(name, prefix) {
			c.Changed(name)
		}
	}
}

func (c *Core) changedFor(l *lane) {
	for _, name := range Meters(l.name) {
		c.Changed(name)
	}
}

// wake has a meter be served no later than a time.
func (c *Core) wake(m *meter, at int64) {
	if m.due.position == 0 || at < m.due.key {
		c.due.put(&m.due, at)
	}
}

// first returns the lane that is next at a meter; nil if none can be granted.
func (m *meter) first() *lane {
	if len(m.returning) > 0 && (len(m.shares.children) == 0 || m.returning[0].rank <= m.shares.children[0].rank) {
		return m.returning[0].value
	}
	return m.shares.first()
}

func (c *Core) touch(m *meter) {
	if !m.touched {
		m.touched = true
		c.touched = append(c.touched, m)
	}
}

// Sharing returns the meters for which the number of lanes that take turns there has changed since
// the last call: zero where no lane waits and nothing is held.
func (c *Core) Sharing() map[string]int {
	changed := map[string]int{}
	for _, m := range c.touched {
		m.touched = false
		sharing := m.lanes
		if m.waiting == 0 && !slices.ContainsFunc(m.holds, func(h hold) bool { return h.begun && h.turns > 0 }) {
			sharing = 0
		}
		if sharing != m.published {
			m.published = sharing
			changed[m.name] = sharing
		}
		if m.lanes == 0 {
			c.due.remove(&m.due)
			delete(c.meters, m.name)
		}
	}
	c.touched = c.touched[:0]
	return changed
}

// batchSize is how many turns a meter gets in one batch. A batch is chosen as if all of it were
// granted, and a meter does not say how much more it can give. So a meter first gets as many turns
// as it gave the last time that it was ready, and then, while it still is, 1, 2, 4 and so on.
type batchSize struct {
	left, step     int
	gave, refused  int // gave counts since the meter got ready
	tried          bool
	noAdvanceUntil int64
	// Until nearUntil jobs are granted no further in advance than nearAdvance, because a job had a
	// turn of which the meter gives few at once.
	nearUntil, nearAdvance int64
	takesEarly             bool // whether the last job that it gave a turn did
}

const maxBatch = 256

// adjust prepares the next batch.
func (b *batchSize) adjust(ready bool) {
	if ready && b.refused == 0 {
		b.left, b.step = b.step, min(2*b.step, maxBatch)
	} else {
		b.left, b.step, b.gave = max(1, min(b.gave, maxBatch)), 1, 0
	}
	b.tried, b.refused = false, 0
}

// slotStats is how often a slot of a concurrency limit becomes free. Slots do so as jobs end,
// mostly long before their leases do, and no meter says when.
type slotStats struct {
	isConcurrency bool
	fullSince     int64
	freed         bool  // something has changed since it was full
	interval      int64 // how long it was full, on average, until a slot came
	// atOnce is how many slots then came together, on average, and given how many were given since
	// cameAt.
	atOnce, given, cameAt int64
}

// setFull notes that a meter can give nothing before a time that is not known.
func (s *slotStats) setFull(now, ready int64) {
	if s.isConcurrency = true; ready > now && s.fullSince == 0 {
		s.fullSince, s.freed = now, false
		s.atOnce = (s.atOnce + s.given + 1) / 2
	}
}

// observeFreed notes that a slot has come.
func (s *slotStats) observeFreed(now int64) {
	if !s.freed {
		return
	}
	if full := now - s.fullSince; s.fullSince > 0 && s.interval > 0 {
		s.interval += (full - s.interval) / 4
	} else if s.fullSince > 0 {
		s.interval = full
	}
	if s.fullSince > 0 {
		s.cameAt, s.given = now, 0
	}
	s.fullSince, s.freed = 0, false
}

// observeGrant notes that a slot was given.
func (s *slotStats) observeGrant(now int64) {
	if s.observeFreed(now); s.fullSince > 0 { // a slot has come, although no notification said so
		s.cameAt, s.given, s.fullSince = now, 0, 0
	}
	if now < s.cameAt+notifyStep {
		s.given++
	}
}

// returnTime is how long the need's permits take to come back.
func (n *need) returnTime() int64 {
	if n.isConcurrency {
		return min(n.cost*n.interval, n.refill)
	}
	return n.refill
}
