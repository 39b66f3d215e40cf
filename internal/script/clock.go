package script

import (
	"sync"
	"time"
)

// clockLife is for how long an answer is used to read Redis's clock. Clocks drift apart by some
// milliseconds meanwhile.
const clockLife = 30 * time.Second

// A clock reads Redis's clock from the answers of scripts. Each answer has the time at which Redis
// ran the script, between sending and answer. The answer that came soonest after that time shows
// best how far Redis's clock is ahead. So an answer that came late, or that this process read late
// because it was stopped, is known to be old. A clock is safe for concurrent use.
type clock struct {
	mu         sync.Mutex
	young, old reading // the best answer of the present life, and that of the one before
	end        time.Time
}

// reading is by how many microseconds Redis's clock is ahead of this process's at least.
type reading struct {
	ahead int64
	known bool
}

// when returns the earliest time by this process's clock at which Redis's clock may have shown us,
// as an answer says that was sent and came then. Without an earlier answer to compare with it is
// when the script was sent. If Redis's clock has stepped, an answer may count as old as the script
// is, and the first one after a step forward as too young if it came late.
func (c *clock) when(us int64, sent, came time.Time) time.Time {
	ahead, oldest := us-came.UnixMicro(), Elapsed(sent, came)
	c.mu.Lock()
	defer c.mu.Unlock()
	if came.After(c.end) {
		c.old, c.young = c.young, reading{}
		if came.Sub(c.end) > clockLife {
			c.old = reading{}
		}
		c.end = came.Add(clockLife)
	}
	best := c.old
	if c.young.known && (!best.known || c.young.ahead > best.ahead) {
		best = c.young
	}
	if !c.young.known || ahead > c.young.ahead {
		c.young = reading{ahead, true}
	}
	if !best.known {
		return came.Add(-oldest)
	}
	return came.Add(-min(oldest, max(0, time.Duration(best.ahead-ahead)*time.Microsecond)))
}

// When returns the earliest time by this process's clock at which Redis's clock may have shown us,
// as the answer says that has just come to a script.
func (c *Callers) When(us int64, sent *Sent) time.Time {
	return c.clock.when(us, sent.last, time.Now())
}

// Elapsed returns how long it is at most from one time to another. The monotonic clock stands still
// while a machine sleeps, the wall clock does not.
func Elapsed(from, to time.Time) time.Duration {
	return max(to.Sub(from), to.Round(0).Sub(from.Round(0)))
}
