package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/shard"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// In returns the queues and the limiter of one shard. The zero Shard stands for all queues without
// shards.
func (q *Queues) In(part shard.Shard) *Queues {
	in := *q
	in.part = &part
	mine := func(queue string) bool { return q.Sharded.Part(queue) == part }
	in.Rules.ServedQueues = slices.DeleteFunc(slices.Clone(q.Rules.ServedQueues), func(queue string) bool { return !mine(queue) })
	in.Rules.Limits, _ = q.Sharded.LimitsIn(part, q.Rules.Limits) // the config has been checked
	if part.Count > 0 {
		rdb, _, app := q.Limiter.Internals().Scope()
		in.Limiter = waitdb.New(throttle.New(rdb, throttle.Options{Scope: part.Name(), App: app}))
		in.scope = part.Name()
	}
	return &in
}

// Of returns the queues and the limiter of an asynq queue's shard, or q if the queue is no shard.
func (q *Queues) Of(queue string) *Queues {
	if part := q.Sharded.Part(queue); part.Count > 0 {
		return q.In(part)
	}
	return q
}

// parts returns the zero Shard and all shards.
func (q *Queues) parts() []shard.Shard {
	parts := []shard.Shard{{}}
	for name, queue := range q.Sharded {
		parts = append(parts, shard.All(name, queue.Count)...)
	}
	slices.SortFunc(parts, func(a, b shard.Shard) int {
		return cmp.Or(strings.Compare(a.Queue, b.Queue), cmp.Compare(a.Index, b.Index))
	})
	return parts
}

// Scopes returns the queues and the limiter of each scope: of all queues without shards, and of each
// shard.
func (q *Queues) Scopes() (all []*Queues) {
	for _, part := range q.parts() {
		all = append(all, q.In(part))
	}
	return all
}

// EachPlace calls do with each limiter that counts a key of a limit, until the first error. A nil key
// stands for all keys.
func (q *Queues) EachPlace(limit string, key *string, do func(l *waitdb.DB, part shard.Shard) error) error {
	for _, part := range q.Sharded.Places(limit, key) {
		if err := do(q.In(part).Limiter, part); err != nil {
			return err
		}
	}
	return nil
}

// ReadLimit reads a limit. A divided limit is the sum of its parts.
func (q *Queues) ReadLimit(ctx context.Context, name string) (throttle.Limit, error) {
	var parts []throttle.Limit
	err := q.EachPlace(name, nil, func(l *waitdb.DB, _ shard.Shard) error {
		part, _, err := l.Internals().Key(ctx, name, "")
		parts = append(parts, part)
		return err
	})
	if err != nil {
		return throttle.Limit{}, err
	}
	return q.Sharded.Join(name, parts), nil
}

// ReadKeys reads the blocked keys of a limit, and the keys with an override. If a limit is divided,
// an override is the sum of the shards' overrides.
func (q *Queues) ReadKeys(ctx context.Context, limit throttle.Limit) (blocks []throttle.Blocked, keys []throttle.KeyState, err error) {
	parts := map[string][]throttle.Limit{} // the overrides, as limits
	err = q.EachPlace(limit.Name, nil, func(l *waitdb.DB, _ shard.Shard) error {
		some, err := l.Blocks(ctx, limit.Name)
		if err != nil {
			return err
		}
		blocks = joinBlocks(blocks, some)
		states, err := l.Keys(ctx, limit.Name)
		for _, k := range states {
			if parts[k.Key] = append(parts[k.Key], throttle.Limit{Kind: limit.Kind, Rate: k.Rate, Capacity: k.Capacity}); len(parts[k.Key]) == 1 {
				keys = append(keys, k)
			}
		}
		return err
	})
	for i := range keys {
		whole := q.Sharded.Join(limit.Name, parts[keys[i].Key])
		keys[i].Rate, keys[i].Capacity = whole.Rate, whole.Capacity
	}
	return blocks, keys, err
}

// joinBlocks adds the blocks of another shard. The later end of a key's blocks counts.
func joinBlocks(blocks, some []throttle.Blocked) []throttle.Blocked {
	for _, b := range some {
		if i := slices.IndexFunc(blocks, func(other throttle.Blocked) bool { return other.Key == b.Key }); i < 0 {
			blocks = append(blocks, b)
		} else if b.Until.After(blocks[i].Until) {
			blocks[i] = b
		}
	}
	return blocks
}

// ReadMeter reads the meter of a key, and how the key differs from its limit. For a divided limit both
// are sums over the shards.
func (q *Queues) ReadMeter(ctx context.Context, limit, key string) (sum waitdb.Meter, own throttle.KeyState, err error) {
	var meters []waitdb.Meter
	var parts []throttle.Limit
	err = q.EachPlace(limit, &key, func(l *waitdb.DB, _ shard.Shard) error {
		some, err := l.Meters(ctx, false, throttle.Need{Limit: limit, Key: key})
		if err != nil {
			return err
		}
		of, state, err := l.Internals().Key(ctx, limit, key)
		meters, own = joinMeters(meters, some), state
		parts = append(parts, throttle.Limit{Kind: of.Kind, Rate: state.Rate, Capacity: state.Capacity})
		return err
	})
	if err != nil {
		return sum, own, err
	}
	whole := q.Sharded.Join(limit, parts)
	own.Rate, own.Capacity = whole.Rate, whole.Capacity
	return meters[0], own, nil
}

// joinMeters adds the meters of another shard to those of the same keys.
func joinMeters(meters, some []waitdb.Meter) []waitdb.Meter {
	for _, m := range some {
		i := slices.IndexFunc(meters, func(other waitdb.Meter) bool { return other.Key == m.Key })
		if i < 0 {
			meters = append(meters, m)
			continue
		}
		sum := &meters[i]
		sum.Capacity += m.Capacity
		sum.Left += m.Left
		sum.Wanted += m.Wanted
		sum.Reserved += m.Reserved
		sum.PerSecond += m.PerSecond
		sum.NextIn, sum.Known = min(sum.NextIn, m.NextIn), sum.Known && m.Known
	}
	return meters
}

// Peek returns what a key of a limit has left, without taking any. For a divided limit it is the sum
// over the shards.
func (q *Queues) Peek(ctx context.Context, limit, key string) (sum throttle.Decision, err error) {
	first := true
	err = q.EachPlace(limit, &key, func(l *waitdb.DB, _ shard.Shard) error {
		d, err := l.AllowN(ctx, limit, key, 0)
		if first {
			sum, first = d, false
			return err
		}
		sum.Remaining += d.Remaining
		sum.Capacity += d.Capacity
		sum.RetryAfter, sum.ResetAfter = min(sum.RetryAfter, d.RetryAfter), max(sum.ResetAfter, d.ResetAfter)
		return err
	})
	return sum, err
}

// SetLimit changes or creates a limit. Each shard gets its part of a divided limit.
func (q *Queues) SetLimit(ctx context.Context, limit throttle.Limit) error {
	parts, err := q.partsOf(limit)
	if err != nil {
		return err
	}
	return q.EachPlace(limit.Name, nil, func(l *waitdb.DB, part shard.Shard) error { return l.Set(ctx, parts[part]) })
}

// SetKey overrides a key of a limit. Each shard gets its part for a divided limit.
func (q *Queues) SetKey(ctx context.Context, limit, key string, o throttle.Override) error {
	set := func(do func(l *waitdb.DB, part throttle.Override) error) error {
		return q.EachPlace(limit, &key, func(l *waitdb.DB, part shard.Shard) error {
			own := o
			if _, divided := q.Sharded.Home(limit); divided {
				is, _, err := l.Internals().Key(ctx, limit, "")
				if err == nil {
					own, err = part.DivideOverride(is.Kind, o)
				}
				if err != nil {
					return err
				}
			}
			return do(l, own)
		})
	}
	if err := set(func(*waitdb.DB, throttle.Override) error { return nil }); err != nil { // checks all parts before it changes any
		return err
	}
	return set(func(l *waitdb.DB, own throttle.Override) error { return l.SetKey(ctx, limit, key, own) })
}

// partsOf returns the part of a limit for each shard that counts it.
func (q *Queues) partsOf(limit throttle.Limit) (map[shard.Shard]throttle.Limit, error) {
	parts := map[shard.Shard]throttle.Limit{}
	_, divided := q.Sharded.Home(limit.Name)
	for _, part := range q.Sharded.Places(limit.Name, nil) {
		parts[part] = limit
		if divided {
			var err error
			if parts[part], err = part.Divide(limit); err != nil {
				return nil, fmt.Errorf("limit %s: %w", limit.Name, err)
			}
		}
	}
	return parts, nil
}

// Limits reads all limits, by name. A limit that no shard has defined yet is missing.
func (q *Queues) Limits(ctx context.Context) ([]throttle.Limit, error) {
	limits, err := q.Limiter.Limits(ctx)
	for _, queue := range q.Sharded {
		for _, name := range slices.Concat(queue.ByKey, queue.Divided) {
			limit, errOne := q.ReadLimit(ctx, name)
			if errOne == nil {
				limits = append(limits, limit)
			} else if !errors.Is(errOne, throttle.ErrNoLimit) {
				err = errors.Join(err, errOne)
			}
		}
	}
	slices.SortFunc(limits, func(a, b throttle.Limit) int { return strings.Compare(a.Name, b.Name) })
	return limits, err
}

// CountWaiting counts the jobs that wait for a limit, or for one key of the limit, and need at
// least cost permits at once. The cost can differ between shards.
func (q *Queues) CountWaiting(ctx context.Context, limit string, cost func(shard.Shard) int, key *string) (jobs int, err error) {
	var keys []string
	if key != nil {
		keys = append(keys, *key)
	}
	err = q.EachPlace(limit, key, func(l *waitdb.DB, part shard.Shard) error {
		n, err := l.CountWaiting(ctx, limit, cost(part), keys...)
		jobs += n
		return err
	})
	return jobs, err
}
