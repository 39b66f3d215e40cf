package fairqueue

import "slices"

// worldMeter is a meter that admits: a funnel, unless it has a window or a lease.
type simMeter struct {
	name     string
	interval int64 // in which a permit returns; of a window, the mean
	capacity int64
	window   int64
	lease    int64
	sliding  int64 // of a window that slides, in steps of this length

	tat, start, count int64
	used              int64   // permits in all
	log               []int64 // when permits of a sliding window return
	reserved          int64
	paused            bool
}

// ready is when a meter can give k permits, and whether that is a forecast.
func (m *simMeter) ready(k, now int64) (at int64, known bool) {
	switch {
	case m.paused:
		return never, false
	case m.lease > 0:
		if m.count+k <= m.capacity {
			return now, true
		}
		return now + m.lease, false
	case m.sliding > 0:
		m.roll(now)
		if over := int64(len(m.log)) + k - m.capacity; over > int64(len(m.log)) {
			return now + m.window, true
		} else if over > 0 {
			return m.log[over-1], true
		}
		return now, true
	case m.window > 0:
		m.roll(now)
		return max(now, m.start+(m.count+k-1)/m.capacity*m.window), true
	}
	if k > m.capacity {
		return max(m.tat, now) + (k-m.capacity)*m.interval, true
	}
	return max(now, m.tat-(m.capacity-k)*m.interval), true
}

func (m *simMeter) take(k, now int64) {
	m.used += k
	switch {
	case m.lease > 0:
		m.count += k
	case m.sliding > 0:
		back := now + m.window + m.sliding - 1
		m.log = append(m.log, slices.Repeat([]int64{back - back%m.sliding}, int(k))...)
	case m.window > 0:
		m.roll(now)
		m.count += k
	default:
		m.tat = max(m.tat, now) + k*m.interval
	}
}

func (m *simMeter) roll(now int64) {
	for len(m.log) > 0 && m.log[0] <= now {
		m.log = m.log[1:]
	}
	if start := now - now%m.window; start > m.start {
		m.start, m.count = start, 0
	}
}

// refill is how long k permits take to return once they are used.
func (m *simMeter) refill(k int64) int64 {
	switch {
	case m.lease > 0:
		return m.lease
	case m.window > 0:
		return m.window
	}
	return k * m.interval
}

// together is for how many jobs of k permits those return at once.
func (m *simMeter) together(k int64) int64 {
	if m.window == 0 {
		return 1
	}
	return m.capacity / k
}

// early reports whether a job may have permits before they exist, and begin when they do.
func (m *simMeter) early() bool { return m.lease == 0 && m.window == 0 }

// ahead is how far ahead of its time a job of k permits may be called.
func (m *simMeter) ahead(k int64) int64 {
	spare := (m.capacity - k) * m.interval
	switch {
	case m.lease > 0:
		return 0
	case spare >= maxAdvance:
		return maxAdvance
	case m.early():
		return max(travelTime, spare/2)
	}
	return 0
}
