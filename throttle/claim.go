package throttle

import (
	"crypto/rand"
	"time"

	"github.com/headgate/headgate/internal/meter"
)

// A meterKey is one limit and one key.
type meterKey struct{ limit, key string }

// A meterID identifies the state of a meter. If a limit changes its kind, it uses other meters. If
// it changes back, it uses the old meters again.
type meterID struct {
	kind Kind
	meterKey
}

// meter returns the limit in the form that meters use. since is the time from which the limit is in
// force.
func (l Limit) meter(since int64) *meter.Limit {
	return &meter.Limit{
		Kind: string(l.Kind), N: l.Rate.N, Per: l.Rate.Per, Margin: l.Margin, Capacity: l.MaxCost(),
		Lease: l.lease(), Zone: l.Zone, Since: since,
	}
}

// A claim is one need of a call, with the meter that it needs and the time of the call.
type claim struct {
	meter.Gate
	need  Need
	limit *meter.Limit // of the key: the limit itself, or with the key's override
	id    meterID
	now   int64
}

// pausedUS is the RetryAfter of a paused limit. It is so long that the requests cost little, and so
// short that callers notice Resume soon.
const pausedUS = 60_000_000

// bottleneck returns the claim with the longest wait, and the first time at which the permits of
// all claims are available. The latest of their ready times is not always that time, because a
// window with a margin can close again before the other meters open. So bottleneck asks all meters
// again from that time on. If a claim's limit is paused, or if 100 steps find no such time,
// bottleneck returns a time at which the caller should request again.
func bottleneck(claims []claim) (slowest *claim, at int64) {
	at = -1
	from := claims[0].now
	for range 100 {
		before := at
		for i := range claims {
			c := &claims[i]
			ready := max(c.now+pausedUS, c.Blocked, from)
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
	return slowest, at
}

// decision returns the decision of a call, with the limit, key and numbers of this claim. It reads
// the present state of the meter, so takeAll calls it after all permits are taken.
func (c *claim) decision(outcome Outcome) Decision {
	return Decision{
		Outcome: outcome, Limit: c.need.Limit, Key: c.need.Key, Cost: c.need.Cost,
		Capacity: c.limit.Capacity, Remaining: int(c.Left(c.now)), At: time.UnixMicro(c.now),
		ResetAfter: microseconds(c.FullAt(c.now) - c.now),
	}
}

// denial returns the denial of a call, or false if the permits of all claims are available.
func denial(claims []claim) (d Decision, denied bool) {
	slowest, at := bottleneck(claims)
	if at <= slowest.now {
		return Decision{}, false
	}
	d = slowest.decision(Denied)
	d.RetryAfter = microseconds(at - slowest.now)
	return d, true
}

// takeAll takes the permits of all claims. The decision names the claim with the fewest permits
// left. All leases of the call have one new holder. A call without leases has no holder.
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
