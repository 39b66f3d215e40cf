package script

import (
	"sync"
	"time"
)

// clockLife is for how long an answer is used to read Redis's clock: clocks drift apart by
// some milliseconds meanwhile.
const clockLife = 30 * time.Second

// A clock reads Redis's clock by the answers of scripts. Each has a moment of that clock, at
// which Redis ran the script: after it was sent and before its answer came. How far that
// clock is ahead is known best by the answer that came soonest after its moment; so one that
// came late, or that this process read late because it was stopped, is known to be old. It is
// safe for concurrent use.
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

// when is the earliest moment by this process's clock at which Redis's may have shown that
// microsecond: an answer says so, to a script that was sent and came then. Without an earlier
// answer to compare with it is when the script was sent. If Redis's clock has stepped, an
// answer may count as old as the script is, and the first one after a step forward as too
// young if it came late.
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

// When is the earliest moment by this process's clock at which Redis's may have shown that
// microsecond, which the answer to a script says that has just come.
func (c *Callers) When(us int64, sent *Sent) time.Time {
	return c.clock.when(us, sent.last, time.Now())
}

// Elapsed is how long it is at most from one moment to another. The clock that only goes
// forward stands still while a machine sleeps, the other one does not.
func Elapsed(from, to time.Time) time.Duration {
	return max(to.Sub(from), to.Round(0).Sub(from.Round(0)))
}
