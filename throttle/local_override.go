package throttle

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"
)

// override is what a key counts by, as long as its limit is of that kind. One that
// was taken back stays for a while, without a kind: that the key's rate has changed
// since is what keeps Settle from giving back what was taken at the old one.
type override struct {
	Override
	file        bool
	kind        Kind
	since, ends int64 // in microseconds; ends is 0 if it does not

	base, with, without *activeLimit // what with and without were made of
}

// at is the rate that a key goes by at a moment, and when that ends: 0 if it does
// not. Both rates are made once for each change of the limit and not in each call. A
// rate holds since the limit or the override was said last, and the limit's own
// again since the override has ended.
func (o *override) at(r *activeLimit, now int64) (_ *activeLimit, ends int64) {
	if o.base != r {
		with, without := *r, *r
		with.Limit, with.since = r.With(o.Override), max(r.since, o.since)
		without.since = max(r.since, o.since)
		o.base, o.with, o.without = r, &with, &without
	}
	switch {
	case o.kind != r.Kind || o.ends > 0 && o.ends <= now:
		if o.ends <= now {
			o.without.since = max(o.without.since, o.ends)
		}
		return o.without, 0
	}
	return o.with, o.ends
}

// limitOf is the limit that a key goes by at a moment, and when that ends.
func (l *Local) limitOf(r *activeLimit, key string, now int64) (_ *activeLimit, ends int64) {
	if o := l.overrides[meterKey{r.Name, key}]; o != nil {
		return o.at(r, now)
	}
	return r, 0
}

// recount has a key's meter count by the rate of now. What it owes stays owed.
func (l *Local) recount(r *activeLimit, key string, now int64) {
	if m := l.meters[meterID{r.Kind, meterKey{r.Name, key}}]; m != nil {
		now, _ := l.limitOf(r, key, now)
		m.define(now)
	}
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

// recountEnded has meters whose own rate has ended count by the limit's before that
// changes.
func (l *Local) recountEnded(r *activeLimit, now int64) {
	for key, o := range l.overrides {
		if key.limit == r.Name && o.ends > 0 && o.ends <= now {
			l.recount(r, key.key, now)
		}
	}
}

// Keys implements Limiter. It looks at the overrides of all limits.
func (l *Local) Keys(_ context.Context, limit string) ([]KeyState, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.begin()
	var keys []KeyState
	for key, o := range l.overrides {
		if key.limit != limit || o.kind != l.limits[limit].Kind || o.ends > 0 && o.ends <= now {
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
