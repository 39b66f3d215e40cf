package throttle

import (
	"crypto/rand"
	"time"

	"github.com/headgate/headgate/internal/meter"
)

// A meterKey is one limit and one key.
type meterKey struct{ limit, key string }

// A meterID names a meter's state. A limit that changes its kind gets new meters, and the old ones
// back if it changes back.
type meterID struct {
	kind Kind
	meterKey
}

// meter returns what meters count by under this limit since a time.
func (l Limit) meter(since int64) *meter.Limit {
	return &meter.Limit{
		Kind: string(l.Kind), N: l.Rate.N, Per: l.Rate.Per, Margin: l.Margin, Capacity: l.MaxCost(),
		Lease: l.lease(), Zone: l.Zone, Since: since, Calendar: &meter.Calendar{},
	}
}

// A claim is one need at one time, with the meter that answers it.
type claim struct {
	meter.Gate
	need  Need
	limit *meter.Limit // what the key counts by
	id    meterID
	now   int64
}

// pausedUS is after how long a caller of a paused limit looks again: long enough to cost little,
// short enough to notice Resume.
const pausedUS = 60_000_000

// ready returns the first time, not before from, at which the need could be met. If the limit is
// paused, nobody knows that time, and it returns when to look again.
func (c *claim) ready(from int64) int64 {
	if c.Paused {
		return max(c.now+pausedUS, c.Blocked, from)
	}
	return c.ReadyFrom(c.now, int64(c.need.Cost), from)
}

// binding returns the claim to wait longest for, and the first time at which all can be met. A
// window with a margin, or a key whose override ends, can be closed again when the last of the
// others opens. If such windows hardly ever meet, it returns a time at which to ask again.
func binding(claims []claim) (bind *claim, at int64) {
	at = -1
	from := claims[0].now
	for range 100 {
		before := at
		for i := range claims {
			if ready := claims[i].ready(from); ready > at {
				bind, at = &claims[i], ready
			}
		}
		if from = at; at == before || at >= meter.MaxTime {
			break
		}
	}
	return bind, at
}

// decision returns the answer if this claim is the one that decides. Its numbers are those after
// everything was taken.
func (c *claim) decision(outcome Outcome) Decision {
	return Decision{
		Outcome: outcome, Limit: c.need.Limit, Key: c.need.Key, Cost: c.need.Cost,
		Capacity: c.limit.Capacity, Remaining: int(c.Left(c.now)), At: time.UnixMicro(c.now),
		ResetAfter: microseconds(c.FullAt(c.now) - c.now),
	}
}

// denial returns the answer if this claim decides, and all can be met at a time.
func (c *claim) denial(at int64) Decision {
	d := c.decision(Denied)
	d.RetryAfter = microseconds(at - c.now)
	return d
}

// takeAll takes the permits of all claims. The claim with the fewest permits left decides. All
// leases of the call have one holder; a call without leases has none.
func takeAll(claims []claim) Decision {
	var tightest *claim
	holder, lease := "", time.Duration(0)
	var taken []Need
	var marks []meter.Mark
	for i := range claims {
		c := &claims[i]
		if leases, ok := c.Meter.(*meter.Leases); ok && c.need.Cost > 0 {
			if holder == "" {
				holder, lease = rand.Text(), c.limit.Lease
			}
			leases.Holder, lease = holder, min(lease, c.limit.Lease)
		}
		if c.need.Cost > 0 {
			taken, marks = append(taken, c.need), append(marks, c.Take(c.now, int64(c.need.Cost)))
		}
		if tightest == nil || c.Left(c.now) < tightest.Left(c.now) {
			tightest = c
		}
	}
	d := tightest.decision(Allowed)
	d.Holder, d.Lease, d.Taken, d.marks = holder, lease, taken, marks
	return d
}
