package throttle

import (
	"context"
	"maps"
	"slices"
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

// override is what a key counts by, as long as its limit is of that kind. One that
// was taken back stays for a while, without a kind: that the key's rate has changed
// since is what keeps Settle from giving back what was taken at the old one.
type override struct {
	Override
	file        bool
	kind        Kind
	since, ends int64 // in microseconds; ends is 0 if it does not
}

// holds reports whether a limit's key goes by the override at a moment.
func (o *override) holds(r *activeLimit, now int64) bool {
	return o.kind == r.Kind && (o.ends == 0 || now < o.ends)
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
	now := l.begin()
	defer l.mu.Unlock()
	return l.decide(now, needs), nil
}

// decide looks at all meters before it takes from any. Needs come sorted, so where
// several are refused for good the first by name is told, as by Redis.
func (l *Local) decide(now int64, needs []Need) Decision {
	claims := make([]claim, len(needs))
	for i, need := range needs {
		r := l.limits[need.Limit]
		if r == nil || len(r.Apps) > 0 && !slices.Contains(r.Apps, l.App) {
			return Decision{Outcome: NoLimit, Limit: need.Limit, Key: need.Key, Cost: need.Cost, ForOthers: r != nil, At: time.UnixMicro(now)}
		}
		c := &claims[i]
		*c = l.claim(now, r, need)
		if need.Cost > c.own.MaxCost() {
			return c.decision(Never)
		}
	}
	if bind, at := binding(claims); at > now {
		return bind.denial(at)
	}
	d := takeAll(claims)
	for _, c := range claims {
		if c.need.Cost > 0 {
			l.meters[c.id] = c.meter
		}
	}
	return d
}

// claim finds the meter of a need, or makes one that is only kept if permits
// are taken: a key that is merely looked at costs no memory.
func (l *Local) claim(now int64, r *activeLimit, need Need) claim {
	key := meterKey{need.Limit, need.Key}
	c := claim{gate: gate{paused: r.Paused, blocked: l.blocks[key]}, need: need, limit: r, id: meterID{r.Kind, key}, now: now}
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

// Throttle implements Limiter. Its meters are those of a limit without a name,
// and so apart from those of every other: no other limit can have that name. Since
// the limit comes with each call, a change of its numbers is one that was made now.
func (l *Local) Throttle(_ context.Context, key string, maxBurst, count int, period time.Duration, quantity int) (Cell, error) {
	if err := validCell(key, maxBurst, count, period, quantity); err != nil {
		return Cell{}, err
	}
	now := l.begin()
	defer l.mu.Unlock()
	r := &activeLimit{Limit: Limit{Kind: Funnel, Rate: Rate{count, period}, Capacity: maxBurst + 1}, since: now}
	c := l.claim(now, r, Need{Key: key, Cost: quantity})

	outcome, at := Allowed, c.ready(now)
	switch {
	case quantity > r.Capacity:
		outcome = Never
	case at > now:
		outcome = Denied
	case quantity > 0:
		c.meter.take(now, int64(quantity))
		l.meters[c.id] = c.meter
	}
	return newCell(outcome, r.Capacity, now, at, c.left(), c.fullAt(now)), nil
}

// Extend implements Limiter. It extends what is still held even where it reports
// false: the holder is to stop, and frees the rest in its own time.
func (l *Local) Extend(_ context.Context, holder string, needs ...Need) (bool, error) {
	now := l.begin()
	defer l.mu.Unlock()
	held := true
	for _, need := range needs {
		r := l.limits[need.Limit]
		if r == nil || r.Kind != Concurrency {
			continue
		}
		c, found := l.claim(now, r, need).meter.(*concurrency)
		held = found && c.extend(now, holder) && held
	}
	return held, nil
}

// Free implements Limiter. It asks for no limit of that name and kind, so a lease is
// given back also where the limit has been changed or deleted since.
func (l *Local) Free(_ context.Context, holder string, needs ...Need) error {
	l.begin()
	defer l.mu.Unlock()
	for _, need := range needs {
		if c, ok := l.meters[meterID{Concurrency, meterKey{need.Limit, need.Key}}].(*concurrency); ok {
			c.free(holder)
		}
	}
	return nil
}

// Settle implements Limiter.
func (l *Local) Settle(_ context.Context, d Decision, limit, key string, cost int) error {
	t, err := d.settles(limit, key, cost)
	if err != nil {
		return err
	}
	return l.change(limit, func(r *activeLimit, now int64) {
		c := l.claim(now, r, t.Need)
		at, more := d.At.UnixMicro(), int64(cost-t.Cost)
		held, leased := c.meter.(*concurrency)
		longer := int64(0)
		switch {
		case leased:
			held.resize(now, d.Holder, int64(cost))
		case more > 0:
			charge(c.meter, now, more)
			l.meters[c.id] = c.meter
			if g, ok := c.meter.(*gcra); ok {
				longer, _ = span(more, g.n, g.period)
			}
		case more < 0 && t.Mark[0] > 0 && c.own.since <= at && at <= now && now-at < memory:
			c.meter.giveBack(now, -more, spent{at, int64(t.Cost), t.Mark})
		}
		t.charged(cost, longer)
	})
}

// change does something to a limit that exists, at a moment, with the lock held. Of
// one that does not exist it returns an error that wraps ErrNoLimit.
func (l *Local) change(name string, do func(r *activeLimit, now int64)) error {
	now := l.begin()
	defer l.mu.Unlock()
	r := l.limits[name]
	if r == nil {
		return noLimit(name)
	}
	do(r, now)
	return nil
}

// limitOf is the limit that a key goes by at a moment, and when that ends: 0 if it does
// not. A rate holds since the limit or the override was said last, and the limit's own
// again since the override has ended.
func (l *Local) limitOf(r *activeLimit, key string, now int64) (_ *activeLimit, ends int64) {
	o := l.overrides[meterKey{r.Name, key}]
	if o == nil {
		return r, 0
	}
	own := *r
	own.since = max(r.since, o.since)
	if o.holds(r, now) {
		own.Limit = r.With(o.Override)
		return &own, o.ends
	}
	if o.ends <= now {
		own.since = max(own.since, o.ends)
	}
	return &own, 0
}

// recount has a key's meter count by the rate of now. What it owes stays owed.
func (l *Local) recount(r *activeLimit, key string, now int64) {
	if m := l.meters[meterID{r.Kind, meterKey{r.Name, key}}]; m != nil {
		now, _ := l.limitOf(r, key, now)
		m.define(now)
	}
}

// begin starts a call, with the lock held: it returns the time in microseconds and, once in as many
// calls as there are meters, drops those that count nothing any more. So a cold
// key costs no memory, and sweeping costs a call constant time on average, without
// a goroutine that would have to be stopped. It also makes the maps of a zero Local.
func (l *Local) begin() int64 {
	l.mu.Lock()
	locked := false
	defer func() {
		if !locked { // the Clock panicked
			l.mu.Unlock()
		}
	}()
	if l.meters == nil {
		l.limits = make(map[string]*activeLimit)
		l.meters = make(map[meterID]meter)
		l.blocks = make(map[meterKey]int64)
		l.overrides = make(map[meterKey]*override)
	}
	now := time.Now
	if l.Clock != nil {
		now = l.Clock
	}
	us := now().UnixMicro()
	l.calls++
	if l.calls > max(100, len(l.meters)+len(l.blocks)+len(l.overrides)) {
		l.calls = 0
		l.sweep(us)
	}
	locked = true
	return us
}

// sweep forgets the meters and blocks that say nothing any more. As in Redis they
// are kept for a while longer: the clock may step back. A meter whose rate ends is
// kept until that has gone, since by the limit's own rate it may owe for longer than
// by the one that it was last told; and one that was given something back for as long as
// calls can settle that took before.
func (l *Local) sweep(now int64) {
	before := len(l.meters)
	for key, o := range l.overrides {
		if o.ends > 0 && o.ends <= now-grace-memory {
			l.recount(l.limits[key.limit], key.key, now)
			delete(l.overrides, key)
		}
	}
	maps.DeleteFunc(l.meters, func(id meterID, m meter) bool {
		o := l.overrides[id.meterKey]
		if g, ok := m.(*gcra); ok && g.given > 0 && g.used > now-grace-memory {
			return false
		}
		return (o == nil || o.ends == 0) && m.fullAt(now-grace) <= now-grace
	})
	maps.DeleteFunc(l.blocks, func(_ meterKey, until int64) bool { return until <= now-grace })
	if len(l.meters) < before/4 {
		l.meters = maps.Collect(maps.All(l.meters)) // a map does not shrink by itself
	}
}
