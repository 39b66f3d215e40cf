package throttle

import (
	"math"
	"time"
)

// Cell is redis-cell's answer to CL.THROTTLE in five numbers, plus Never,
// which redis-cell does not tell from a denial with a retry. Only where Limited is
// false may the caller go on.
type Cell struct {
	Limited    bool
	Limit      int           // max_burst + 1
	Remaining  int           // permits left
	RetryAfter time.Duration // until the same call is allowed; -1 when it was, or never will be
	ResetAfter time.Duration // until the key is as if never used
	Never      bool          // the quantity is above Limit: no wait will help
}

// Numbers is the answer as redis-cell prints it: limited 0 or 1, limit,
// remaining, retry after and reset after in seconds. Seconds are rounded up,
// so that who waits that long is not early.
func (c Cell) Numbers() [5]int64 {
	limited := int64(0)
	if c.Limited {
		limited = 1
	}
	return [5]int64{limited, int64(c.Limit), int64(c.Remaining), ceilSeconds(c.RetryAfter), ceilSeconds(c.ResetAfter)}
}

// ceilSeconds is whole seconds, rounded up; -1 stays what it is.
func ceilSeconds(d time.Duration) int64 {
	if d < 0 {
		return -1
	}
	return int64(math.Ceil(d.Seconds()))
}
