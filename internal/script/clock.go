package script

import (
	"sync"
	"time"
)

// clockLife is the length of an interval. The best reply of an interval is used until the end of
// the next interval. Clocks drift apart by some milliseconds in that time.
const clockLife = 30 * time.Second

// A clock converts times of Redis's clock to times of this process's clock. Each reply has the time
// at which Redis ran the script. The reply that came back fastest gives the best estimate of the
// offset between the clocks. With this offset, a clock recognizes a reply that arrived late, or
// that this process read late because it was stopped. A clock is safe for concurrent use.
type clock struct {
	mu                sync.Mutex
	current, previous offset    // the largest offsets of the current and of the previous interval
	end               time.Time // of the current interval
}

// offset is a lower bound of how far Redis's clock is ahead of this process's, in microseconds.
type offset struct {
	us    int64
	known bool
}

// when converts redisUS, Redis's time in a reply, to this process's clock. sent and received are
// the times of the script and of its reply. The result is from sent to received, and at most as
// much too late as the fastest earlier reply took to arrive. Without an earlier reply, the result
// is sent. If Redis's clock steps back, the result may be as early as sent. If it steps forward,
// the result for one late reply may be too late.
func (c *clock) when(redisUS int64, sent, received time.Time) time.Time {
	us, maxAge := redisUS-received.UnixMicro(), Elapsed(sent, received)
	c.mu.Lock()
	defer c.mu.Unlock()
	if received.After(c.end) {
		c.previous, c.current = c.current, offset{}
		if received.Sub(c.end) > clockLife {
			c.previous = offset{}
		}
		c.end = received.Add(clockLife)
	}
	best := c.previous
	if c.current.known && (!best.known || c.current.us > best.us) {
		best = c.current
	}
	if !c.current.known || us > c.current.us {
		c.current = offset{us, true}
	}
	if !best.known {
		return received.Add(-maxAge)
	}
	return received.Add(-min(maxAge, max(0, time.Duration(best.us-us)*time.Microsecond)))
}

// Elapsed returns the time from one moment to another by the monotonic or by the wall clock,
// whichever gives more. The monotonic clock stops while a machine sleeps.
func Elapsed(from, to time.Time) time.Duration {
	return max(to.Sub(from), to.Round(0).Sub(from.Round(0)))
}
