package throttle

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"
)

// Define implements Limiter. All limits are checked before the first is put in use,
// and then all are at once.
func (l *Local) Define(_ context.Context, limits ...Limit) error {
	if err := validate(limits...); err != nil {
		return err
	}
	now := l.begin()
	defer l.mu.Unlock()
	for _, limit := range limits {
		limit.Paused = false
		words := limit.String()
		r := l.limits[limit.Name]
		if r == nil || r.words != words {
			r = l.put(limit, now)
			r.words = words
		}
		l.defineKeys(r, limit.Kind, limit.Overrides, now)
	}
	return nil
}

// Set implements Limiter.
func (l *Local) Set(_ context.Context, limit Limit) error {
	if err := validate(limit); err != nil {
		return err
	}
	now := l.begin()
	defer l.mu.Unlock()
	l.put(limit, now)
	return nil
}

// put makes the limit the one in use. It keeps whether the limit is paused, and
// spells out the defaults, as Redis does. Its meters count by the new words from now
// on; those whose own rate has ended first count by the old words up to now, as a
// meter that nobody asked does not know yet that it has.
func (l *Local) put(limit Limit, now int64) *activeLimit {
	was := l.limits[limit.Name]
	if was == nil {
		was = &activeLimit{}
	}
	limit.Paused = was.Paused
	limit.Apps, limit.Overrides = slices.Clone(limit.Apps), nil
	for key, o := range l.overrides {
		if key.limit == limit.Name && o.ends > 0 && o.ends <= now {
			l.recount(was, key.key, now)
		}
	}
	switch limit.Kind {
	case Funnel, TokenBucket:
		limit.Capacity = limit.MaxCost()
	case Concurrency:
		limit.Lease = limit.lease()
	default:
		limit.Capacity = 0
	}
	r := *was
	r.Limit, r.calendar = limit, new([]int64)
	if was.String() != limit.String() {
		r.since = now
	}
	l.limits[limit.Name] = &r
	for id := range l.meters {
		if id.kind == r.Kind && id.limit == r.Name {
			l.recount(&r, id.key, now) // what is owed now is owed at the new rate
		}
	}
	return &r
}

// Delete implements Limiter. What its meters counted stays, so that deleting a
// limit and making it again hands out nothing twice.
func (l *Local) Delete(_ context.Context, name string) error {
	return l.change(name, func(*activeLimit, int64) {
		delete(l.limits, name)
		maps.DeleteFunc(l.blocks, func(key meterKey, _ int64) bool { return key.limit == name })
		maps.DeleteFunc(l.overrides, func(key meterKey, _ *override) bool { return key.limit == name })
	})
}

// Limits implements Limiter.
func (l *Local) Limits(context.Context) ([]Limit, error) {
	l.begin()
	defer l.mu.Unlock()
	var limits []Limit
	for _, name := range slices.Sorted(maps.Keys(l.limits)) {
		limit := l.limits[name].Limit
		limit.Apps = slices.Clone(limit.Apps)
		limits = append(limits, limit)
	}
	return limits, nil
}

// Pause implements Limiter. The pause is the limit's, not the words': Set and Define
// carry it over.
func (l *Local) Pause(_ context.Context, name string) error {
	return l.change(name, func(r *activeLimit, _ int64) { r.Paused = true })
}

// Resume implements Limiter.
func (l *Local) Resume(_ context.Context, name string) error {
	return l.change(name, func(r *activeLimit, _ int64) { r.Paused = false })
}

// Block implements Limiter.
func (l *Local) Block(_ context.Context, limit, key string, until time.Time) error {
	if err := validMeter(limit, key); err != nil {
		return err
	}
	return l.change(limit, func(_ *activeLimit, now int64) {
		if at := until.UnixMicro(); at > now {
			l.blocks[meterKey{limit, key}] = min(at, far)
		} else {
			delete(l.blocks, meterKey{limit, key})
		}
	})
}

// Reset implements Limiter.
func (l *Local) Reset(_ context.Context, limit, key string) error {
	if err := validMeter(limit, key); err != nil {
		return err
	}
	return l.change(limit, func(r *activeLimit, _ int64) {
		delete(l.meters, meterID{r.Kind, meterKey{limit, key}})
		delete(l.blocks, meterKey{limit, key})
	})
}

// SetKey implements Limiter.
func (l *Local) SetKey(_ context.Context, limit, key string, o Override) error {
	if err := validMeter(limit, key); err != nil {
		return err
	}
	var wrong error
	err := l.change(limit, func(r *activeLimit, now int64) {
		if wrong = o.validate(r.Limit); wrong == nil {
			l.setKey(r, key, r.Kind, o, now, false)
		}
	})
	return cmp.Or(err, wrong)
}

// setKey has a key count by an override from now on, for a limit of that kind. Up to
// now its meter counts by the rate before, so that what it owes is known in permits.
func (l *Local) setKey(r *activeLimit, key string, kind Kind, o Override, now int64, file bool) {
	l.recount(r, key, now)
	set := &override{Override: o, file: file, kind: kind, since: now}
	if o.For > 0 {
		set.ends = min(now+o.For.Microseconds(), far)
	}
	l.overrides[meterKey{r.Name, key}] = set
	l.recount(r, key, now)
}

// UnsetKey implements Limiter.
func (l *Local) UnsetKey(_ context.Context, limit, key string) error {
	if err := validMeter(limit, key); err != nil {
		return err
	}
	return l.change(limit, func(r *activeLimit, now int64) { l.unsetKey(r, key, now) })
}

// unsetKey leaves an override that has just ended in the place of a key's, which
// sweep drops. A key that counts by its limit is left alone.
func (l *Local) unsetKey(r *activeLimit, key string, now int64) {
	o := l.overrides[meterKey{r.Name, key}]
	if o == nil || o.kind == "" {
		return
	}
	l.recount(r, key, now)
	*o = override{since: now, ends: now} // goes some time
	l.recount(r, key, now)
}

// defineKeys makes what a definition says of single keys current, where it differs
// from what it said last, or all of it where it speaks of another kind of limit.
// What SetKey said of a key stays unless the definition says something new of it,
// also where the definition speaks of that key no more.
func (l *Local) defineKeys(r *activeLimit, kind Kind, keys map[string]Override, now int64) {
	for key, o := range keys {
		if kind != r.keysKind || r.keys[key] != o {
			l.setKey(r, key, kind, o, now, true)
		}
	}
	for key := range r.keys {
		if _, still := keys[key]; still {
			continue
		}
		if o := l.overrides[meterKey{r.Name, key}]; o != nil && o.file {
			l.unsetKey(r, key, now)
		}
	}
	r.keys, r.keysKind = maps.Clone(keys), kind
}

// Keys implements Limiter. It looks at the overrides of all limits.
func (l *Local) Keys(_ context.Context, limit string) ([]KeyState, error) {
	now := l.begin()
	defer l.mu.Unlock()
	var keys []KeyState
	for key, o := range l.overrides {
		if key.limit != limit || !o.holds(l.limits[limit], now) {
			continue
		}
		k := KeyState{Key: key.key, Override: o.Override, File: o.file, Share: 1}
		if o.ends > 0 {
			k.Until, k.For = time.UnixMicro(o.ends), microseconds(o.ends-now)
		}
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b KeyState) int { return cmp.Compare(a.Key, b.Key) })
	return keys, nil
}
