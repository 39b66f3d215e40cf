package throttle

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/meter"
)

// local is the backend that keeps its meters in this process.
type local struct {
	clock func() time.Time
	app   string

	mu        sync.Mutex
	defined   map[string]*activeLimit
	meters    map[meterID]meter.Meter
	blocked   map[meterKey]int64 // microsecond at which the block ends
	overrides map[meterKey]*override
	resets    map[meterKey]int64 // microsecond of the last reset: permits that were taken before cannot be given back
	calls     int                // number of calls since the last sweep
}

func newLocal(opts Options) *local {
	l := &local{
		clock: opts.Clock, app: opts.App, defined: map[string]*activeLimit{}, meters: map[meterID]meter.Meter{},
		blocked: map[meterKey]int64{}, overrides: map[meterKey]*override{}, resets: map[meterKey]int64{},
	}
	if l.clock == nil {
		l.clock = time.Now
	}
	return l
}

// An activeLimit is a limit that Define or Set has defined.
type activeLimit struct {
	Limit
	inMeter *meter.Limit // the limit of meters whose keys have no override
	file    Limit        // the limit of the last Define; zero if only Set defined it
}

// override is a key's override, valid for one kind of limit. A removed override is kept for a
// while, without a kind, because Settle needs the time at which the key's rate changed.
type override struct {
	Override
	file  bool  // true if Define has set the override
	kind  Kind  // kind of limit for which the override is valid; empty after its removal
	since int64 // microsecond at which the override was set or removed
}

// allow checks all meters before it takes permits. If several needs are impossible, the decision
// names the first of them.
func (l *local) allow(_ context.Context, needs []Need) (Decision, error) {
	now := l.lock()
	defer l.mu.Unlock()
	claims := make([]claim, len(needs))
	for i, need := range needs {
		r := l.defined[need.Limit]
		if r == nil || len(r.Apps) > 0 && !slices.Contains(r.Apps, l.app) {
			return Decision{Outcome: NoLimit, Limit: need.Limit, Key: need.Key, Cost: need.Cost, forOthers: r != nil, At: time.UnixMicro(now)}, nil
		}
		claims[i] = l.claim(now, r, need)
		if need.Cost > claims[i].limit.Capacity {
			return claims[i].decision(Impossible), nil
		}
	}
	if d, denied := denial(claims); denied {
		return d, nil
	}
	d := takeAll(claims)
	for _, c := range claims {
		if c.need.Cost > 0 {
			l.meters[c.id] = c.Meter
		}
	}
	return d, nil
}

// claim returns the claim of a need, with an existing or a new meter. The caller stores a new meter
// only after it has taken permits, so reading a key costs no memory.
func (l *local) claim(now int64, r *activeLimit, need Need) claim {
	key := meterKey{need.Limit, need.Key}
	c := claim{
		Gate: meter.Gate{Paused: r.Paused, Blocked: l.blocked[key]},
		need: need, limit: l.limitOf(r, need.Key), id: meterID{r.Kind, key}, now: now,
	}
	if c.Meter = l.meters[c.id]; c.Meter == nil {
		c.Meter = meter.New(c.limit)
	} else {
		c.Meter.Define(c.limit)
	}
	return c
}

// throttle stores its meters under the empty limit name, which no named limit has. If the call has
// another rate than the key's last call, the rate of the meter changes.
func (l *local) throttle(_ context.Context, key string, limit Limit, quantity int) (Decision, error) {
	now := l.lock()
	defer l.mu.Unlock()
	c := l.claim(now, &activeLimit{Limit: limit, inMeter: limit.meter(now)}, Need{Key: key, Cost: quantity})
	if quantity > limit.Capacity {
		return c.decision(Impossible), nil
	}
	if d, denied := denial([]claim{c}); denied {
		return d, nil
	}
	if quantity > 0 {
		l.meters[c.id] = c.Meter
	}
	d := takeAll([]claim{c})
	d.Taken, d.marks = nil, nil // there is no limit of that name to settle
	return d, nil
}

// extend extends the remaining leases even if one lease is lost. It extends a lease on a limit that
// was deleted, or that has another kind now, for the default lease, as in Redis.
func (l *local) extend(_ context.Context, holder string, needs []Need) (time.Duration, error) {
	now := l.lock()
	defer l.mu.Unlock()
	first, lost := int64(math.MaxInt64), false
	for _, need := range needs {
		lease, exists := meter.DefaultLease, false
		if r := l.defined[need.Limit]; r != nil && r.Kind == Concurrency {
			lease, exists = r.Lease, true
		}
		left := int64(0)
		if leases, ok := l.meters[meterID{Concurrency, meterKey{need.Limit, need.Key}}].(*meter.Leases); ok {
			left = leases.Extend(now, holder, lease.Microseconds())
		}
		if left > 0 {
			first = min(first, left)
		} else if exists {
			lost = true
		}
	}
	if lost || first == math.MaxInt64 {
		return 0, nil
	}
	return microseconds(first), nil
}

// free does not read the limit, so it frees a lease even after a change or deletion of the limit.
func (l *local) free(_ context.Context, holder string, needs []Need) error {
	l.lock()
	defer l.mu.Unlock()
	for _, need := range needs {
		if c, ok := l.meters[meterID{Concurrency, meterKey{need.Limit, need.Key}}].(*meter.Leases); ok {
			c.Free(holder)
		}
	}
	return nil
}

func (l *local) settle(_ context.Context, d Decision, i, cost int) error {
	need, mark := d.Taken[i], d.marks[i]
	return l.withLimit(need.Limit, func(r *activeLimit, now int64) {
		c := l.claim(now, r, need)
		at, more := d.At.UnixMicro(), int64(cost-need.Cost)
		owedUS := int64(0)
		if leases, ok := c.Meter.(*meter.Leases); ok {
			leases.Resize(now, d.Holder, int64(cost))
		} else if more > 0 {
			owedUS = meter.Charge(c.Meter, now, more)
			l.meters[c.id] = c.Meter
		} else if more < 0 && mark[0] > 0 && l.resets[meterKey{need.Limit, need.Key}] < at && c.limit.Since <= at && at <= now && now-at < meter.GiveBackTime {
			c.Meter.GiveBack(now, at, -more, int64(need.Cost), mark)
		}
		d.settled(i, cost, owedUS)
	})
}

func (l *local) define(_ context.Context, limits []Limit) error {
	now := l.lock()
	defer l.mu.Unlock()
	for _, limit := range limits {
		limit.Paused, limit.Apps, limit.Overrides = false, slices.Clone(limit.Apps), maps.Clone(limit.Overrides)
		r := l.defined[limit.Name]
		if r == nil || r.file.String() != limit.String() {
			r = l.put(limit, now)
		}
		l.defineKeys(r, limit, now)
		r.file = limit
	}
	return nil
}

func (l *local) set(_ context.Context, limit Limit) error {
	now := l.lock()
	defer l.mu.Unlock()
	l.put(limit, now)
	return nil
}

// put stores a limit. It keeps the pause of the old limit, and fills in the defaults of Capacity
// and Lease, as in Redis. The meters count with the new definition from now on.
func (l *local) put(limit Limit, now int64) *activeLimit {
	was := l.defined[limit.Name]
	if was == nil {
		was = &activeLimit{inMeter: Limit{}.meter(0)}
	}
	limit.Paused = was.Paused
	limit.Apps, limit.Overrides = slices.Clone(limit.Apps), nil
	switch limit.Kind {
	case Funnel, TokenBucket:
		limit.Capacity = limit.MaxCost()
	case Concurrency:
		limit.Lease = limit.lease()
	default:
		limit.Capacity = 0
	}
	since := was.inMeter.Since
	if was.String() != limit.String() {
		since = now
	}
	r := *was
	r.Limit, r.inMeter = limit, limit.meter(since)
	l.defined[limit.Name] = &r
	for id := range l.meters {
		if id.kind == r.Kind && id.limit == r.Name {
			l.convertMeter(&r, id.key) // permits in use become available at the new rate
		}
	}
	return &r
}

func (l *local) delete(_ context.Context, name string) error {
	return l.withLimit(name, func(_ *activeLimit, _ int64) {
		delete(l.defined, name)
		maps.DeleteFunc(l.blocked, func(key meterKey, _ int64) bool { return key.limit == name })
		maps.DeleteFunc(l.overrides, func(key meterKey, _ *override) bool { return key.limit == name })
	})
}

func (l *local) limits(_ context.Context) ([]Limit, error) {
	l.lock()
	defer l.mu.Unlock()
	var limits []Limit
	for _, name := range slices.Sorted(maps.Keys(l.defined)) {
		limit := l.defined[name].Limit
		limit.Apps = slices.Clone(limit.Apps)
		limits = append(limits, limit)
	}
	return limits, nil
}

// pause pauses or resumes the limit. A pause is no part of the definition, so Set and Define keep
// it.
func (l *local) pause(_ context.Context, name string, paused bool) error {
	return l.withLimit(name, func(r *activeLimit, _ int64) { r.Paused = paused })
}

func (l *local) block(_ context.Context, limit, key string, until time.Time) error {
	return l.withLimit(limit, func(_ *activeLimit, now int64) {
		if at := until.UnixMicro(); at > now {
			l.blocked[meterKey{limit, key}] = min(at, meter.MaxTime)
		} else {
			delete(l.blocked, meterKey{limit, key})
		}
	})
}

func (l *local) blocks(_ context.Context, limit string) ([]Blocked, error) {
	now := l.lock()
	defer l.mu.Unlock()
	var blocks []Blocked
	for key, at := range l.blocked {
		if key.limit == limit && at > now {
			blocks = append(blocks, Blocked{key.key, time.UnixMicro(at)})
		}
	}
	slices.SortFunc(blocks, func(a, b Blocked) int { return cmp.Or(a.Until.Compare(b.Until), cmp.Compare(a.Key, b.Key)) })
	return blocks, nil
}

func (l *local) reset(_ context.Context, limit, key string) error {
	return l.withLimit(limit, func(r *activeLimit, now int64) {
		delete(l.meters, meterID{r.Kind, meterKey{limit, key}})
		delete(l.blocked, meterKey{limit, key})
		if r.Kind != SlidingLog { // its marks are the times of the permits
			l.resets[meterKey{limit, key}] = now
		}
	})
}

func (l *local) setKey(_ context.Context, limit, key string, o Override) error {
	var invalid error
	err := l.withLimit(limit, func(r *activeLimit, now int64) {
		if invalid = o.validate(r.Limit); invalid == nil {
			l.override(r, key, override{o, false, r.Kind, now})
		}
	})
	return cmp.Or(err, invalid)
}

// override sets the override of a key. It converts the key's meter to the new rate, so that the
// number of permits in use does not change.
func (l *local) override(r *activeLimit, key string, o override) {
	l.overrides[meterKey{r.Name, key}] = &o
	l.convertMeter(r, key)
}

func (l *local) unsetKey(_ context.Context, limit, key string) error {
	return l.withLimit(limit, func(r *activeLimit, now int64) { l.removeOverride(r, key, now) })
}

// removeOverride removes the override of a key. It keeps the time of the removal for Settle.
func (l *local) removeOverride(r *activeLimit, key string, now int64) {
	if o := l.overrides[meterKey{r.Name, key}]; o != nil && o.kind != "" {
		l.override(r, key, override{since: now})
	}
}

// defineKeys sets the overrides of a definition that differ from those of the last definition. If
// the kind of the limit has changed, it sets all overrides. It removes an override that Define has
// set and that the definition no longer has. Overrides that SetKey has set for other keys stay.
func (l *local) defineKeys(r *activeLimit, limit Limit, now int64) {
	for key, o := range limit.Overrides {
		if limit.Kind != r.file.Kind || r.file.Overrides[key] != o {
			l.override(r, key, override{o, true, limit.Kind, now})
		}
	}
	for key := range r.file.Overrides {
		_, still := limit.Overrides[key]
		if o := l.overrides[meterKey{r.Name, key}]; !still && o != nil && o.file {
			l.removeOverride(r, key, now)
		}
	}
}

func (l *local) keys(_ context.Context, limit string) ([]KeyState, error) {
	l.lock()
	defer l.mu.Unlock()
	var keys []KeyState
	for key, o := range l.overrides {
		if key.limit == limit && o.kind == l.defined[limit].Kind {
			keys = append(keys, KeyState{Key: key.key, Override: o.Override, File: o.file, Share: 1})
		}
	}
	slices.SortFunc(keys, func(a, b KeyState) int { return cmp.Compare(a.Key, b.Key) })
	return keys, nil
}

func (l *local) changes(context.Context, int) ([]Change, error) { return nil, nil }

// withLimit locks l.mu, and calls do with a limit and the time. If the limit does not exist,
// withLimit does not call do, and returns an error that wraps ErrNoLimit.
func (l *local) withLimit(name string, do func(r *activeLimit, now int64)) error {
	now := l.lock()
	defer l.mu.Unlock()
	r := l.defined[name]
	if r == nil {
		return noLimit(name)
	}
	do(r, now)
	return nil
}

// limitOf returns the limit of a key, with the key's override. Its Since is the time of the last
// change of the limit or of the override.
func (l *local) limitOf(r *activeLimit, key string) *meter.Limit {
	o := l.overrides[meterKey{r.Name, key}]
	if o == nil {
		return r.inMeter
	}
	own := *r.inMeter
	own.Since = max(own.Since, o.since)
	if o.kind == r.Kind {
		limit := r.With(o.Override)
		own.N, own.Per, own.Capacity = limit.Rate.N, limit.Rate.Per, limit.MaxCost()
	}
	return &own
}

// convertMeter converts the meter of a key, if there is one, to the present limit of the key. The
// number of permits in use does not change.
func (l *local) convertMeter(r *activeLimit, key string) {
	if m := l.meters[meterID{r.Kind, meterKey{r.Name, key}}]; m != nil {
		m.Define(l.limitOf(r, key))
	}
}

// lock locks l.mu, which the caller unlocks, and returns the time in microseconds. The time is read
// after the lock is held, so that no decision has a time before that of an earlier call. lock sweeps
// once in about as many calls as there are meters, so a call has constant cost on average.
func (l *local) lock() int64 {
	l.mu.Lock()
	us := l.readClock()
	l.calls++
	if l.calls > max(100, len(l.meters)+len(l.blocked)+len(l.overrides)+len(l.resets)) {
		l.calls = 0
		l.sweep(us)
	}
	return us
}

// readClock reads the program's clock. If the clock panics, readClock unlocks l.mu, so that other
// calls can go on.
func (l *local) readClock() (us int64) {
	returned := false
	defer func() {
		if !returned {
			l.mu.Unlock()
		}
	}()
	us = l.clock().UnixMicro()
	returned = true
	return us
}

// sweep drops meters, blocks and removed overrides that expired at least a minute ago. It keeps
// younger ones, as in Redis, because the clock may step back.
func (l *local) sweep(now int64) {
	before := len(l.meters)
	maps.DeleteFunc(l.overrides, func(_ meterKey, o *override) bool {
		return o.kind == "" && o.since <= now-meter.Grace-meter.GiveBackTime
	})
	maps.DeleteFunc(l.meters, func(_ meterID, m meter.Meter) bool { return meter.Expired(m, now) })
	maps.DeleteFunc(l.blocked, func(_ meterKey, until int64) bool { return until <= now-meter.Grace })
	maps.DeleteFunc(l.resets, func(_ meterKey, at int64) bool { return at <= now-meter.Grace-meter.GiveBackTime })
	if len(l.meters) < before/4 {
		l.meters = maps.Collect(maps.All(l.meters)) // a map does not shrink by itself
	}
}
