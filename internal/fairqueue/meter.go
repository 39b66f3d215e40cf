package fairqueue

import (
	"maps"
	"slices"
	"strings"
)

// meter is the scheduler's view of one limit and key, with the lanes that wait for its permits.
type meter struct {
	name string
	// shares holds the waiting lanes that can be granted. returning holds lanes that were already
	// charged a turn here and then had to wait at another meter; they are served first, oldest turn
	// first.
	shares    share
	returning priorityQueue[*lane]
	// waiting is the number of lanes that wait here, lanes the number of all lanes that need the
	// meter, multiLimit the number of those that also need other meters.
	waiting, lanes, multiLimit int
	holds                      []hold
	missed                     []*lane // lanes charged by payMissed since the meter last gave a turn
	bounds
	// For a concurrency limit, all permits have been in use since fullSince, or the last one became
	// free then; it is 0 if others are free. The average time until one became free is interval, in
	// microseconds. Permits return when jobs end, usually long before their lease expires.
	isConcurrency       bool
	fullSince, interval int64
	due                 item[*meter] // when it is to be served
	batch
	published int // last value returned by Sharing
}

// meter returns the meter of a name, which it makes if there is none.
func (c *Core) meter(name string) *meter {
	m := c.meters[name]
	if m == nil {
		m = &meter{name: name, published: -1, bounds: bounds{trustTime: minTrust}, batch: batch{left: 1, step: 1}}
		m.shares.parts = map[string]*share{}
		m.due.value = m
		c.meters[name] = m
	}
	return m
}

// Changed discards what a meter last replied, because it may have free permits earlier by now.
func (c *Core) Changed(now int64, name string) {
	m := c.meters[name]
	if m == nil {
		return
	}
	m.bounds = bounds{trustTime: minTrust}
	if m.fullSince > 0 {
		if full := now - m.fullSince; m.interval > 0 {
			m.interval += (full - m.interval) / 4
		} else {
			m.interval = full
		}
		m.fullSince = now // permits of several jobs may return one right after the other
	}
	c.wake(m, 0)
}

// ChangedLimit calls Changed for all meters of a limit, or for all meters if the limit is empty. It
// does so in the order of their names, so that the same calls give the same turns.
func (c *Core) ChangedLimit(now int64, limit string) {
	for _, name := range slices.Sorted(maps.Keys(c.meters)) {
		if limit == "" || strings.HasPrefix(name, limit+"|") {
			c.Changed(now, name)
		}
	}
}

func (c *Core) changedFor(now int64, l *lane) {
	for _, name := range Meters(l.name) {
		c.Changed(now, name)
	}
}

// wake schedules the next service of a meter for a time, if it is not scheduled sooner.
func (c *Core) wake(m *meter, at int64) { c.due.putBy(&m.due, at) }

// first returns the lane that is next at a meter; nil if none can be granted.
func (m *meter) first() *lane {
	if len(m.returning) > 0 && (len(m.shares.children) == 0 || m.returning[0].rank <= m.shares.children[0].rank) {
		return m.returning[0].value
	}
	return m.shares.first()
}

// Sharing returns the number of lanes that take turns at each meter, if it has changed since the
// last call. The number is zero if no lane waits at the meter and no permits of it are held.
func (c *Core) Sharing(now int64) map[string]int {
	changed := map[string]int{}
	for m := range c.touched {
		sharing := m.lanes
		if m.waiting == 0 && !slices.ContainsFunc(m.holds, func(h hold) bool { return h.from <= now && h.turns(m, now) > 0 }) {
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
	clear(c.touched)
	return changed
}

// batch limits the turns that are tried at a meter in one batch, because the number of free permits
// is unknown. A meter first gets as many turns as it gave the last time that it was ready. While it
// stays ready, the next batches have 1, 2, 4 and so on.
type batch struct {
	// left is the number of turns left in this batch, step the size of the next batch if the meter
	// stays ready.
	left, step     int
	gave, refused  int   // turns granted since the meter became ready; turns refused in this batch
	noAdvanceUntil int64 // until then no job is granted in advance
	// Until nearUntil, a job is granted at most nearAdvance before its permits are available,
	// because the meter can reserve only few permits at once.
	nearUntil, nearAdvance int64
	takesEarly             bool // whether the last granted job may take its permits early
}

const maxBatch = 256

// next prepares the next batch.
func (b *batch) next(ready bool) {
	if ready && b.refused == 0 {
		b.left, b.step = b.step, min(2*b.step, maxBatch)
	} else {
		b.left, b.step, b.gave = max(1, min(b.gave, maxBatch)), 1, 0
	}
	b.refused = 0
}

// returnTime is the time after which the need's permits are free again.
func (n *need) returnTime() int64 {
	if n.isConcurrency {
		return min(n.cost*n.interval, n.refill)
	}
	return n.refill
}
