package throttle

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Define implements Limiter. All limits are checked before the first is put in use,
// and then all are at once.
func (l *Local) Define(_ context.Context, limits ...Limit) error {
	for _, limit := range limits {
		if err := limit.Validate(); err != nil {
			return fmt.Errorf("limit %s: %w", limit.Name, err)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.begin()
	for _, limit := range limits {
		limit.Paused = false
		words := limit.String()
		was := l.limits[limit.Name]
		if was == nil || was.words != words {
			l.put(limit, words, now)
		}
		l.defineKeys(l.limits[limit.Name], limit.Kind, limit.Overrides, now)
	}
	return nil
}

// Set implements Limiter.
func (l *Local) Set(_ context.Context, limit Limit) error {
	if err := limit.Validate(); err != nil {
		return fmt.Errorf("limit %s: %w", limit.Name, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.begin()
	words := ""
	if r := l.limits[limit.Name]; r != nil {
		words = r.words
	}
	l.put(limit, words, now)
	return nil
}

// put makes the limit the one in use. It keeps whether the limit is paused, and
// spells out the defaults, as Redis does. Its meters count by the new words from now
// on; those whose own rate has ended first count by the old words up to now, as a
// meter that nobody asked does not know yet that it has.
func (l *Local) put(limit Limit, words string, now int64) {
	was := l.limits[limit.Name]
	limit.Paused = was != nil && was.Paused
	limit.Apps, limit.Overrides = slices.Clone(limit.Apps), nil
	if was != nil {
		l.recountEnded(was, now)
	}
	switch limit.Kind {
	case Funnel, TokenBucket:
		limit.Capacity = limit.MaxCost()
	case Concurrency:
		limit.Lease = limit.lease()
	default:
		limit.Capacity = 0
	}
	since := now
	if was != nil && was.String() == limit.String() {
		since = was.since
	}
	r := &activeLimit{Limit: limit, words: words, since: since}
	if was != nil {
		r.keys, r.keysKind = was.keys, was.keysKind
	}
	l.limits[limit.Name] = r
	for id := range l.meters {
		if id.kind == r.Kind && id.limit == r.Name {
			l.recount(r, id.key, now) // what is owed now is owed at the new rate
		}
	}
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
	l.mu.Lock()
	defer l.mu.Unlock()
	var limits []Limit
	for _, r := range l.limits {
		limit := r.Limit
		limit.Apps = slices.Clone(r.Apps)
		limits = append(limits, limit)
	}
	slices.SortFunc(limits, func(a, b Limit) int { return cmp.Compare(a.Name, b.Name) })
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

// change does something to a limit that exists, at a moment, with the lock held. Of
// one that does not exist it returns an error that wraps ErrNoLimit.
func (l *Local) change(name string, do func(r *activeLimit, now int64)) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.begin()
	r := l.limits[name]
	if r == nil {
		return fmt.Errorf("%w: %s", ErrNoLimit, name)
	}
	do(r, now)
	return nil
}
