package script

import (
	"sync"
	"time"
)

// clockLife is how long a reply is used to estimate the offset of Redis's clock. Clocks drift apart
// by some milliseconds in that time.
const clockLife = 30 * time.Second

// A clock converts times of Redis's clock to times of this process's clock. Each reply has the time
// at which Redis ran the script, which lies between sending the script and reading the reply. The
// reply with the shortest way back gives the best estimate of the offset. So a reply that came
// late, or that this process read late because it was stopped, is recognized as old. A clock is
// safe for concurrent use.
type clock struct {
	mu            sync.Mutex
	current, last offset // the best of the current interval, and of the interval before it
	end           time.Time
}

// offset is the number of microseconds by which Redis's clock is at least ahead of this process's.
type offset struct {
	us    int64
	known bool
}

// when returns the earliest time of this process's clock at which Redis's clock can have shown us,
// for a script that was sent and whose reply came at these times. Without an earlier reply to
// compare with, it returns the time of sending. If Redis's clock steps back, a reply may seem as
// old as the script. If the clock steps forward, the first reply may seem too new if it came late.
func (c *clock) when(us int64, sent, came time.Time) time.Time {
	ahead, longest := us-came.UnixMicro(), Elapsed(sent, came)
	c.mu.Lock()
	defer c.mu.Unlock()
	if came.After(c.end) {
		c.last, c.current = c.current, offset{}
		if came.Sub(c.end) > clockLife {
			c.last = offset{}
		}
		c.end = came.Add(clockLife)
	}
	best := c.last
	if c.current.known && (!best.known || c.current.us > best.us) {
		best = c.current
	}
	if !c.current.known || ahead > c.current.us {
		c.current = offset{ahead, true}
	}
	if !best.known {
		return came.Add(-longest)
	}
	return came.Add(-min(longest, max(0, time.Duration(best.us-ahead)*time.Microsecond)))
}

// Elapsed returns the longest time that can have passed between two times. The monotonic clock
// stops while a machine sleeps, and the wall clock does not.
func Elapsed(from, to time.Time) time.Duration {
	return max(to.Sub(from), to.Round(0).Sub(from.Round(0)))
}
