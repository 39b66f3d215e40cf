package fairqueue

import (
	"maps"
	"slices"
	"strings"
)

// meter is the scheduler's view of one limit and key, with the lanes that wait for its permits.
type meter struct {
	name string
	// shares has the waiting lanes that can be granted, returning those of them that are already
	// charged for a turn here. Returning lanes are served first, oldest turn first.
	shares    share
	returning priorityQueue[*lane]
	// waiting is the number of lanes that wait here, lanes the number of all lanes that need the
	// meter, multiLimit the number of those that also need other meters.
	waiting, lanes, multiLimit int
	holds                      []*need // of lanes that hold permits
	missed                     []*need // charged by payMissed since the meter last gave a turn
	due                        item[*meter]
	published                  int // last value returned by Sharing

	// bounds are the times in the future at which the meter is ready, by its replies. The last
	// reply was at updatedAt.
	bounds    []bound
	updatedAt int64
	// trustTime is how long the last reply is trusted, in microseconds. After that time the meter's
	// first lane gets a turn, although the meter is not ready by that reply. trustTime doubles with
	// each such turn. A granted turn sets it to minTrust.
	trustTime int64
	// fullSince is the time since which a concurrency limit is full and has got no permit back; 0 if
	// it is not full. interval is the average time from one returned permit to the next, in
	// microseconds.
	isConcurrency       bool
	fullSince, interval int64

	// left is the number of turns that the meter may still give in this batch. When the meter
	// becomes ready, it first gets as many turns as were granted the last time. While it stays
	// ready, the next batches have step turns: 1, 2, 4 and so on.
	left, step     int
	gave           int   // turns granted since the meter became ready
	refused        bool  // a turn of this batch was refused or skipped
	noAdvanceUntil int64 // until then no job is granted in advance
	// Until nearUntil, a job is granted at most nearAdvance before its permits are available,
	// because the meter can reserve only few permits at once.
	nearUntil, nearAdvance int64
	takesEarly             bool // whether the last granted job may take its permits early
}

// A bound says that `total` permits or more are not available before `at`, in Unix microseconds.
// The total includes the permits held for lanes with an earlier turn.
type bound struct {
	total, at int64
	unknown   bool // the real time is unknown; at is only the end of a lease
	blocked   bool // the meter is paused or blocked
}

const (
	// minTrust and maxTrust are the minimum and the maximum of trustTime, in microseconds.
	minTrust = 1_000_000
	maxTrust = 30_000_000
	// maxBatch is the most turns that a meter gives in one batch.
	maxBatch = 256
)

// meter returns the meter of a name, which it makes if there is none.
func (c *Core) meter(name string) *meter {
	m := c.meters[name]
	if m == nil {
		m = &meter{name: name, published: -1, trustTime: minTrust, left: 1, step: 1}
		m.shares.parts = map[string]*share{}
		m.due.value = m
		c.meters[name] = m
	}
	return m
}

// Changed discards what a meter last replied, because it may have free permits earlier by now. name
// is a meter, limit|key, or a limit, which means all meters of that limit. If it is empty, all
// meters are meant.
func (c *Core) Changed(now int64, name string) {
	names := []string{name}
	if !strings.Contains(name, "|") {
		names = slices.Sorted(maps.Keys(c.meters)) // so that the same calls give the same turns
	}
	for _, meterName := range names {
		m := c.meters[meterName]
		if m == nil || meterName != name && name != "" && !strings.HasPrefix(meterName, name+"|") {
			continue
		}
		m.bounds, m.updatedAt, m.trustTime = nil, 0, minTrust
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
}

// wake schedules the next service of a meter for a time, if it is not scheduled sooner.
func (c *Core) wake(m *meter, at int64) { c.due.putBy(&m.due, at) }

// first returns the need of the lane that is next at a meter; nil if no lane can be granted.
func (m *meter) first() *need {
	if len(m.returning) > 0 && (len(m.shares.children) == 0 || m.returning[0].rank <= m.shares.children[0].rank) {
		return m.returning[0].value.at
	}
	s := &m.shares
	for len(s.children) > 0 {
		s = s.children[0].value
	}
	if len(s.queue) == 0 {
		return nil
	}
	return s.queue[0].value.at
}

// Sharing returns the number of lanes that take turns at each meter, if it has changed since the
// last call. The number is zero if no lane waits at the meter and no permits of it are held.
func (c *Core) Sharing(now int64) map[string]int {
	changed := map[string]int{}
	for m := range c.touched {
		sharing := m.lanes
		if m.waiting == 0 && !slices.ContainsFunc(m.holds, func(n *need) bool { return n.from <= now && n.heldTurns(now) > 0 }) {
			sharing = 0
		}
		if sharing != m.published {
			m.published = sharing
			changed[m.name] = sharing
		}
		if m.lanes == 0 {
			m.due.remove()
			delete(c.meters, m.name)
		}
	}
	clear(c.touched)
	return changed
}

// Republish makes the next Sharing return the meters of a lane although nothing has changed.
func (c *Core) Republish(lane string) {
	for _, name := range Meters(lane) {
		if m := c.meters[name]; m != nil {
			m.published, c.touched[m] = -1, true
		}
	}
}

// boundOf returns the latest bound that applies to total permits, or the zero bound if there is
// none. Bounds for fewer permits apply as well, because more permits are never available sooner.
func (m *meter) boundOf(total int64) (latest bound) {
	for _, e := range m.bounds {
		if e.total <= total && e.at > latest.at {
			latest = e
		}
	}
	return latest
}

// nextMore returns the first time at which the meter may give more permits than now, or never.
func (m *meter) nextMore(now int64) int64 {
	next := never
	for _, e := range m.bounds {
		if e.at > now {
			next = min(next, e.at)
		}
	}
	return next
}

// update records the bound of a reply. It reports whether the permits are available sooner than an
// earlier reply said.
func (m *meter) update(now int64, news bound) (sooner bool) {
	m.updatedAt = now
	m.bounds = slices.DeleteFunc(m.bounds, func(e bound) bool {
		contradicted := e.total <= news.total && e.at > news.at
		sooner = sooner || contradicted
		return contradicted || e.total >= news.total && e.at <= news.at || e.at <= now
	})
	if news.at > now {
		m.bounds = append(m.bounds, news)
	}
	return sooner
}

func (c *Core) trustedUntil(m *meter) int64 {
	if c.exact {
		return never
	}
	return m.updatedAt + m.trustTime
}

// horizon returns the latest time at which permits that are granted now may become available. It is
// now if a lane of the meter needs several meters, because a grant in advance would reserve permits
// of one meter while the job waits for another meter.
func (m *meter) horizon(now int64) int64 {
	switch {
	case m.multiLimit > 0 || m.noAdvanceUntil > now:
		return now
	case m.nearUntil <= now:
		return now + maxAdvance
	case m.takesEarly:
		return now + max(travelTime, m.nearAdvance)
	}
	return now
}

// leadTime returns how long, in microseconds, the first job of a batch is granted before its
// permits are available. It is only a part of the horizon, because the next jobs of the batch get
// their permits later.
func (m *meter) leadTime(now int64) int64 {
	if !m.takesEarly {
		return 0
	}
	return min(travelTime, m.horizon(now)-now)
}

// returnTime is the time after which the need's permits are free again.
func (n *need) returnTime() int64 {
	if n.isConcurrency {
		return min(n.Cost*n.interval, n.Refill)
	}
	return n.Refill
}
