package throttle

import (
	"crypto/rand"
	"time"

	"github.com/headgate/headgate/internal/meter"
)

// A meterKey is one limit and one key.
type meterKey struct{ limit, key string }

// A meterID identifies the state of a meter. If a limit changes its kind, the limit uses other
// meters. If the kind changes back, the limit uses its old meters again.
type meterID struct {
	kind Kind
	meterKey
}

// meter returns the limit in the form that meters use. The parameter since is the time at which the
// limit came into force, in microseconds.
func (l Limit) meter(since int64) *meter.Limit {
	return &meter.Limit{
		Kind: string(l.Kind), N: l.Rate.N, Per: l.Rate.Per, Margin: l.Margin, Capacity: l.MaxCost(),
		Lease: l.lease(), Zone: l.Zone, Since: since,
	}
}

// A claim is one need of a call, with its meter.
type claim struct {
	meter.Gate
	need  Need
	limit *meter.Limit // the need's limit, changed by the override of its key if there is one
	id    meterID
	now   int64 // time of the call in microseconds
}

// minPausedUS is the least RetryAfter of a paused limit, in microseconds.
const minPausedUS = 60_000_000

// denial returns the decision of a denied call and true. If the permits of all claims are
// available, it returns false.
//
// RetryAfter ends at the first time at which the permits of all claims are available. denial asks
// all meters again for each later time, because a window with a margin can close before the other
// meters are ready. If a claim's limit is paused, or if 100 steps find no such time, RetryAfter ends
// at a time at which the caller should request again.
func denial(claims []claim) (d Decision, denied bool) {
	var slowest *claim
	from, at := claims[0].now, int64(-1)
	for range 100 {
		before := at
		for i := range claims {
			c := &claims[i]
			ready := max(c.now+minPausedUS, c.Blocked, from)
			if !c.Paused {
				ready = c.ReadyFrom(c.now, int64(c.need.Cost), from)
			}
			if ready > at {
				slowest, at = c, ready
			}
		}
		if from = at; at == before || at >= meter.MaxTime {
			break
		}
	}
	if at <= slowest.now {
		return Decision{}, false
	}
	d = slowest.decision(Denied)
	d.RetryAfter = microseconds(at - slowest.now)
	return d, true
}

// decision returns the decision of a call, with the limit, key and numbers of the claim c. The
// numbers show the present state of c's meter.
func (c *claim) decision(outcome Outcome) Decision {
	return Decision{
		Outcome: outcome, Limit: c.need.Limit, Key: c.need.Key, Cost: c.need.Cost,
		Capacity: c.limit.Capacity, Remaining: int(c.Left(c.now)), At: time.UnixMicro(c.now),
		ResetAfter: microseconds(c.FullAt(c.now) - c.now),
	}
}

// takeAll takes the permits of all claims. The decision names the claim with the fewest permits
// left. takeAll gives all leases of the call one new holder. A call without leases has no holder.
func takeAll(claims []claim) Decision {
	var tightest *claim
	var holder string
	var lease time.Duration
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
