package throttle

import (
	"maps"
	"time"
)

// grace is how long a meter is kept after it has become as if never used, so
// that a clock which is set back by less still finds what was counted.
const grace = int64(time.Minute / time.Microsecond)

// begin starts a call: it returns the time in microseconds and, once in as many
// calls as there are meters, drops those that count nothing any more. So a cold
// key costs no memory, and sweeping costs a call constant time on average, without
// a goroutine that would have to be stopped. It also makes the maps of a zero Local.
// The caller holds mu.
func (l *Local) begin() int64 {
	if l.meters == nil {
		l.limits = make(map[string]*activeLimit)
		l.meters = make(map[meterID]meter)
		l.blocks = make(map[meterKey]int64)
		l.overrides = make(map[meterKey]*override)
	}
	now := time.Now
	if l.Clock != nil {
		now = l.Clock
	}
	us := now().UnixMicro()
	l.calls++
	if l.calls > max(100, len(l.meters)+len(l.blocks)+len(l.overrides)) {
		l.calls = 0
		l.sweep(us)
	}
	return us
}

// sweep forgets the meters and blocks that say nothing any more. As in Redis they
// are kept for a while longer: the clock may step back. A meter whose rate ends is
// kept until that has gone, since by the limit's own rate it may owe for longer than
// by the one that it was last told; and one that was given something back for as long as
// calls can settle that took before.
func (l *Local) sweep(now int64) {
	before := len(l.meters)
	for key, o := range l.overrides {
		if o.ends > 0 && o.ends <= now-grace-memory {
			l.recount(l.limits[key.limit], key.key, now)
			delete(l.overrides, key)
		}
	}
	maps.DeleteFunc(l.meters, func(id meterID, m meter) bool {
		o := l.overrides[id.meterKey]
		if g, ok := m.(*gcra); ok && g.given > 0 && g.used > now-grace-memory {
			return false
		}
		return (o == nil || o.ends == 0) && m.fullAt(now-grace) <= now-grace
	})
	maps.DeleteFunc(l.blocks, func(_ meterKey, until int64) bool { return until <= now-grace })
	if len(l.meters) < before/4 {
		l.meters = maps.Collect(maps.All(l.meters)) // a map does not shrink by itself
	}
}
