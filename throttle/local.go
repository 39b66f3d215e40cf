package throttle

import (
	"context"
	"crypto/rand"
	"math"
	"sync"
	"time"
)

// Local is the Limiter that keeps its meters in this process: for programs of
// one process, and for tests. It decides as Redis does, to the microsecond, and
// forgets everything when the process ends. A meter takes memory only once permits
// were taken from it, and until it is as if never used. All calls share one lock,
// which none holds for longer than its arithmetic takes; contexts are not looked at.
//
// The zero value is ready to use, asks as no app and takes the time from time.Now;
// a Clock of its own makes a test of days run in no time. A Local must not be
// copied after first use.
type Local struct {
	// Clock tells the time, for more than one goroutine if several use the Local. It
	// may step back by up to a minute: no meter hands out more for that. The zero
	// value means time.Now.
	Clock func() time.Time
	// App is the name that limits list under Apps.
	App string

	mu     sync.Mutex
	limits map[string]*activeLimit
	meters map[meterID]meter
	blocks map[meterKey]int64 // microsecond at which the block ends
	calls  int                // since the last sweep

	overrides map[meterKey]*override
}

var _ Limiter = (*Local)(nil)

// A meterKey is one limit and one key.
type meterKey struct{ limit, key string }

// A meterID names a meter's state. A limit that changes its kind gets new
// meters, and the old ones back if it changes back.
type meterID struct {
	kind Kind
	meterKey
}

// Allow implements Limiter.
func (l *Local) Allow(ctx context.Context, limit, key string) (Decision, error) {
	return l.AllowN(ctx, limit, key, 1)
}

// AllowN implements Limiter.
func (l *Local) AllowN(_ context.Context, limit, key string, n int) (Decision, error) {
	return l.allow([]Need{{limit, key, n}})
}

// AllowAll implements Limiter.
func (l *Local) AllowAll(_ context.Context, needs ...Need) (Decision, error) {
	return l.allow(withCosts(needs))
}

// Peek implements Limiter.
func (l *Local) Peek(ctx context.Context, limit, key string) (Decision, error) {
	return l.AllowN(ctx, limit, key, 0)
}

// allow decides on needs whose costs may be 0, which only looks.
func (l *Local) allow(needs []Need) (Decision, error) {
	needs, err := normalize(needs)
	if err != nil {
		return Decision{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.decide(l.begin(), needs), nil
}

// decide looks at all meters before it takes from any. Needs come sorted, so where
// several are refused for good the first by name is told, as by Redis.
func (l *Local) decide(now int64, needs []Need) Decision {
	claims := make([]claim, len(needs))
	var bind *claim
	for i, need := range needs {
		r := l.limits[need.Limit]
		if r == nil || !r.allows(l.App) {
			return Decision{Outcome: NoLimit, Limit: need.Limit, Key: need.Key, Cost: need.Cost, ForOthers: r != nil, At: time.UnixMicro(now)}
		}
		c := &claims[i]
		*c = l.claim(now, r, need)
		if need.Cost > c.own.MaxCost() {
			return c.decision(Never)
		}
		if bind == nil || c.readyAt() > bind.readyAt() {
			bind = c
		}
	}
	if bind.readyAt() > now {
		return bind.decision(Denied)
	}
	d := takeAll(claims)
	for _, c := range claims {
		if c.need.Cost > 0 {
			l.meters[c.id] = c.meter
		}
	}
	return d
}

// takeAll takes the permits of all claims. The one with the fewest left decides. All
// leases of the call are one holder's; a call without any has none.
func takeAll(claims []claim) Decision {
	var tightest *claim
	holder, lease := "", time.Duration(0)
	var taken []Taken
	for i := range claims {
		c := &claims[i]
		if held, ok := c.meter.(*concurrency); ok && c.need.Cost > 0 {
			if holder == "" {
				holder, lease = rand.Text(), c.limit.lease()
			}
			held.holder, lease = holder, min(lease, c.limit.lease())
		}
		if c.need.Cost > 0 {
			taken = append(taken, Taken{c.need, c.meter.take(c.now, int64(c.need.Cost))})
		}
		if tightest == nil || c.left() < tightest.left() {
			tightest = c
		}
	}
	d := tightest.decision(Allowed)
	d.Holder, d.Lease, d.Taken = holder, lease, taken
	return d
}

// A claim is one need at one moment, with the meter that answers it. Where the key
// has an override that ends, it knows both rates: a job that is denied now can be
// due after the end.
type claim struct {
	need    Need
	limit   *activeLimit // the limit's own
	own     *activeLimit // the key's
	ends    int64        // when the key goes by next instead; 0 if it does not
	next    *activeLimit
	id      meterID
	meter   meter
	now     int64
	blocked int64 // when the block ends, if there is one
}

// claim finds the meter of a need, or makes one that is only kept if permits
// are taken: a key that is merely looked at costs no memory.
func (l *Local) claim(now int64, r *activeLimit, need Need) claim {
	key := meterKey{need.Limit, need.Key}
	c := claim{need: need, limit: r, id: meterID{r.Kind, key}, now: now, blocked: l.blocks[key]}
	if c.own, c.ends = l.limitOf(r, need.Key, now); c.ends > 0 {
		c.next, _ = l.limitOf(r, need.Key, c.ends)
	}
	c.meter = l.meters[c.id]
	if c.meter == nil {
		c.meter = newMeter(c.own)
	} else {
		c.meter.define(c.own)
	}
	return c
}

// pausedUS is how long from now a paused limit says to come back: long enough
// to cost little, short enough to notice Resume.
const pausedUS = 60_000_000

// readyAt is when the need could be met: not before the end of a pause, which
// nobody knows, or of a block. What the key's own rate puts after its end is as the
// limit's rate has it from then on, which may be later still, but not sooner than
// the end.
func (c *claim) readyAt() int64 {
	if c.limit.Paused {
		return max(c.now+pausedUS, c.blocked)
	}
	at := max(c.meter.readyAt(c.now, int64(c.need.Cost)), c.blocked)
	if c.ends > 0 && at >= c.ends {
		return max(c.after().readyAt(c.ends, int64(c.need.Cost)), c.blocked)
	}
	return at
}

// after is the meter as it will be when the key's rate ends, if nothing is taken
// before.
func (c *claim) after() meter {
	m := c.meter.clone()
	m.define(c.next)
	return m
}

// fullAt is when the meter will be as if never used, by whatever rate holds then.
func (c *claim) fullAt() int64 {
	at := c.meter.fullAt(c.now)
	if c.ends > 0 && at >= c.ends {
		return c.after().fullAt(c.ends)
	}
	return at
}

// left is how many permits the meter has, and none while it is shut.
func (c *claim) left() int64 {
	if c.limit.Paused || c.blocked > c.now {
		return 0
	}
	return c.meter.left(c.now)
}

// decision is the answer if this claim is the one that decides. Its numbers are
// after what was taken.
func (c *claim) decision(outcome Outcome) Decision {
	d := Decision{
		Outcome: outcome, Limit: c.need.Limit, Key: c.need.Key, Cost: c.need.Cost,
		Capacity: c.own.MaxCost(), Remaining: int(c.left()), At: time.UnixMicro(c.now),
		ResetAfter: microseconds(c.fullAt() - c.now),
	}
	if outcome == Denied {
		d.RetryAfter = microseconds(c.readyAt() - c.now)
	}
	return d
}

// microseconds is n microseconds, or the longest duration there is, some 292 years,
// where n does not fit one.
func microseconds(n int64) time.Duration {
	return time.Duration(min(n, math.MaxInt64/1000)) * time.Microsecond
}
