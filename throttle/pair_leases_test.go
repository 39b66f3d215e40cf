package throttle_test

import (
	"pgregory.net/rapid"

	"github.com/headgate/headgate/throttle"
)

// A lease is held permits of one meter, and where they stand in the history.
type lease struct {
	need         throttle.Need
	redis, local string // the holder's names
	meter        string
	index        int
}

func (p *pair) anyLease(t *rapid.T) (int, lease) {
	if len(p.leases) == 0 {
		t.Skip("nothing is held")
	}
	i := rapid.IntRange(0, len(p.leases)-1).Draw(t, "lease")
	return i, p.leases[i]
}

func (p *pair) extend(t *rapid.T) {
	if p.backwards {
		t.Skip("a lease that has ended could come back to life")
	}
	_, l := p.anyLease(t)
	redis, local := answers(t, p, func(x *throttle.Limiter) (bool, error) {
		if x == p.redis.Limiter {
			return x.Extend(t.Context(), l.redis, l.need)
		}
		return x.Extend(t.Context(), l.local, l.need)
	})
	if redis != local {
		t.Fatalf("extended: %t in process, %t on redis", local, redis)
	}
	if redis {
		p.histories[l.meter][l.index].Until = p.redis.now.UnixMicro() + p.limits[l.need.Limit].Lease.Microseconds()
	}
	p.denied = nil
}

func (p *pair) free(t *rapid.T) {
	i, l := p.anyLease(t)
	if err := p.redis.Free(t.Context(), l.redis, l.need); err != nil {
		t.Fatalf("redis: %v", err)
	}
	if err := p.local.Free(t.Context(), l.local, l.need); err != nil {
		t.Fatalf("local: %v", err)
	}
	held := &p.histories[l.meter][l.index]
	held.Until = max(held.At, min(held.Until, p.redis.now.UnixMicro()))
	if p.backwards { // the clock may go back to when it was held
		held.Until = held.At
	}
	p.leases = append(p.leases[:i:i], p.leases[i+1:]...)
	p.denied = nil
}
