package fairqueue

import (
	"maps"
	"slices"
	"strings"
)

// meter is what is known of one limit and key, and who waits there.
type meter struct {
	name string
	// turns are all that it gives: the lanes that wait here and can be called.
	turns share
	// dues are those that have come back here: their turn had come, and they had to wait
	// elsewhere. They go first, the one served longest ago in front.
	dues line[*lane]
	// waiting is how many wait here, those included that are full; lanes is how
	// many lanes need the meter, wherever they wait; wide how many of these need
	// other meters too.
	waiting, lanes, wide int
	holds                []hold
	kept                 []kept // since the last turn
	bounds
	// given is how many turns it gave to lanes, wherever they waited.
	given int64
	slots
	// due is when the meter is to be looked at.
	due place[*meter]
	pace
	// shared is what Sharing last said; touched: it may have changed.
	shared  int
	touched bool
}

// meter returns the meter of a name, which it makes if there is none.
func (c *Core) meter(name string) *meter {
	m := c.meters[name]
	if m == nil {
		m = &meter{name: name, shared: -1, bounds: newBounds(c.certain), pace: newPace()}
		m.due.of = m
		c.meters[name] = m
	}
	return m
}

// Changed says that what was told of a meter's readiness is void.
func (c *Core) Changed(meter string) {
	if m := c.meters[meter]; m != nil {
		c.void(m)
	}
}

// ChangedLimit says the same of all meters of a limit.
func (c *Core) ChangedLimit(limit string) {
	c.changed(func(meter string) bool { return strings.HasPrefix(meter, limit+"|") })
}

// ChangedAll says the same of all meters.
func (c *Core) ChangedAll() {
	c.changed(func(string) bool { return true })
}

// changed goes by name, so that the same calls give the same turns.
func (c *Core) changed(which func(meter string) bool) {
	for _, name := range slices.Sorted(maps.Keys(c.meters)) {
		if which(name) {
			c.void(c.meters[name])
		}
	}
}

// changedFor says the same of a lane's meters.
func (c *Core) changedFor(l *lane) {
	for _, name := range l.meters() {
		c.Changed(name)
	}
}

func (c *Core) void(m *meter) {
	m.bounds = newBounds(c.certain)
	m.given++
	m.freed = true
	c.wake(m, 0)
}

// wake has a meter be looked at no later than a time.
func (c *Core) wake(m *meter, at int64) {
	if m.due.position == 0 || at < m.due.key {
		c.due.put(&m.due, at)
	}
}

// first returns the lane that waits at a meter, can be called and is next; nil if there
// is none.
func (m *meter) first() *lane {
	if len(m.dues) > 0 && (len(m.turns.line) == 0 || m.dues[0].rank <= m.turns.line[0].rank) {
		return m.dues[0].of
	}
	return m.turns.first()
}

// touch notes that Sharing may have news of a meter.
func (c *Core) touch(m *meter) {
	if !m.touched {
		m.touched = true
		c.touched = append(c.touched, m)
	}
}

// Sharing returns the meters for which the number of lanes that take turns there
// has changed since the last call: zero where nobody waits and nothing is held.
func (c *Core) Sharing() map[string]int {
	changed := map[string]int{}
	for _, m := range c.touched {
		m.touched = false
		sharing := m.lanes
		if m.waiting == 0 && !m.holding() {
			sharing = 0
		}
		if sharing != m.shared {
			m.shared = sharing
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
