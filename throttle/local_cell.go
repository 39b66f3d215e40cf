package throttle

import (
	"context"
	"time"
)

// Throttle implements Limiter. Its meters are those of a limit without a name,
// and so apart from those of every other: no other limit can have that name. Since
// the limit comes with each call, a change of its numbers is one that was made now.
func (l *Local) Throttle(_ context.Context, key string, maxBurst, count int, period time.Duration, quantity int) (Cell, error) {
	if err := validCell(key, maxBurst, count, period, quantity); err != nil {
		return Cell{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.begin()
	r := &activeLimit{Limit: Limit{Kind: Funnel, Rate: Rate{count, period}, Capacity: maxBurst + 1}, since: now}
	c := l.claim(now, r, Need{Key: key, Cost: quantity})

	cell := Cell{Limit: maxBurst + 1, RetryAfter: -1}
	switch at := c.readyAt(); {
	case quantity > cell.Limit:
		cell.Limited, cell.Never = true, true
	case at > now:
		cell.Limited, cell.RetryAfter = true, microseconds(at-now)
	case quantity > 0:
		c.meter.take(now, int64(quantity))
		l.meters[c.id] = c.meter
	}
	cell.Remaining = int(c.left())
	cell.ResetAfter = microseconds(c.meter.fullAt(now) - now)
	return cell, nil
}
