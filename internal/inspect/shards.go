package inspect

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate/internal/shard"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// In returns the queues and the limiter of one shard. The zero Shard stands for all queues without
// shards.
func (q *Queues) In(part shard.Shard) *Queues {
	in := *q
	in.part = &part
	mine := func(queue string) bool { return q.Sharded.ShardNamed(queue) == part }
	in.Rules.ServedQueues = slices.DeleteFunc(slices.Clone(q.Rules.ServedQueues), func(queue string) bool { return !mine(queue) })
	in.Rules.Limits, _ = q.Sharded.LimitsIn(part, q.Rules.Limits) // the config has been checked
	if part.Count > 0 {
		rdb, _, app := q.Limiter.Internals().Scope()
		in.Limiter = waitdb.New(throttle.New(rdb, throttle.Options{Scope: part.Name(), App: app}))
		in.scope = part.Name()
	}
	return &in
}

// Scopes returns the queues and the limiter of each scope: of all queues without shards, and of
// each shard.
func (q *Queues) Scopes() []*Queues {
	all := []*Queues{q.In(shard.Shard{})}
	for _, name := range slices.Sorted(maps.Keys(q.Sharded)) {
		for _, part := range shard.All(name, q.Sharded.Count(name)) {
			all = append(all, q.In(part))
		}
	}
	return all
}

// places returns the queues and the limiter of each scope that counts a key of a limit. A nil key
// stands for all keys.
func (q *Queues) places(limit string, key *string) (all []*Queues) {
	for _, part := range q.Sharded.Places(limit, key) {
		all = append(all, q.In(part))
	}
	return all
}

// EachPlace calls do with each limiter that counts a key of a limit, until the first error. A nil
// key stands for all keys.
func (q *Queues) EachPlace(limit string, key *string, do func(l *waitdb.DB, part shard.Shard) error) error {
	for _, in := range q.places(limit, key) {
		if err := do(in.Limiter, *in.part); err != nil {
			return err
		}
	}
	return nil
}

// readAll reads from several scopes at the same time. The results are in the order of the scopes.
func readAll[T any](ctx context.Context, scopes []*Queues, read func(context.Context, *Queues) (T, error)) ([]T, error) {
	results := make([]T, len(scopes))
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(16)
	for i, in := range scopes {
		all.Go(func() (err error) {
			results[i], err = read(ctx, in)
			return err
		})
	}
	return results, all.Wait()
}

// Definition is a limit as Redis has it, with its blocked keys and the keys that have overrides.
type Definition struct {
	throttle.Limit
	Blocks []throttle.Blocked
	Keys   []throttle.KeyState
	Origin throttle.Origin // without Keys it is not read
}

// Definition reads a limit. A divided limit is the sum of its parts.
func (q *Queues) Definition(ctx context.Context, name string) (Definition, error) {
	all, err := q.Definitions(ctx, false)
	if i := slices.IndexFunc(all, func(d Definition) bool { return d.Name == name }); i >= 0 {
		return all[i], err
	}
	return Definition{}, cmp.Or(err, fmt.Errorf("%w: %s", throttle.ErrNoLimit, name))
}

// Definitions reads all limits, sorted by name. If byShard is false, it adds up the parts of a
// divided limit.
func (q *Queues) Definitions(ctx context.Context, byShard bool) ([]Definition, error) {
	scopes := q.Scopes()
	read, err := readAll(ctx, scopes, func(ctx context.Context, in *Queues) ([]Definition, error) { return in.readDefinitions(ctx, true) })
	return q.joinDefinitions(scopes, read, byShard), err
}

func (q *Queues) readDefinitions(ctx context.Context, withKeys bool) (own []Definition, err error) {
	limits, err := q.Limiter.Limits(ctx)
	for i := 0; i < len(limits) && err == nil; i++ {
		d := Definition{Limit: limits[i]}
		if d.Blocks, err = q.Limiter.Blocks(ctx, d.Name); err == nil && withKeys {
			d.Keys, err = q.Limiter.Keys(ctx, d.Name)
		}
		if err == nil && withKeys {
			d.Origin, err = q.Limiter.Internals().Origin(ctx, d.Name)
		}
		own = append(own, d)
	}
	return own, err
}

// joinDefinitions returns the limits of the scopes, sorted by name. If byShard is false, it adds up
// the parts of a limit.
func (q *Queues) joinDefinitions(scopes []*Queues, read [][]Definition, byShard bool) (all []Definition) {
	parts := map[string][]Definition{}
	for i, own := range read {
		for _, d := range own {
			name := scopes[i].shownName(d.Name, byShard)
			parts[name] = append(parts[name], d)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		d := q.joinParts(parts[name])
		d.Name = name
		all = append(all, d)
	}
	return all
}

func (q *Queues) shownName(limit string, byShard bool) string {
	if byShard && q.part.Count > 0 {
		return limit + " in " + q.part.Name()
	}
	return limit
}

// joinParts adds up the parts of a limit.
func (q *Queues) joinParts(parts []Definition) (sum Definition) {
	var limits []throttle.Limit
	overrides := map[string][]throttle.Limit{} // by key, as limits
	for _, d := range parts {
		limits = append(limits, d.Limit)
		sum.Blocks = joinBlocks(sum.Blocks, d.Blocks)
		for _, k := range d.Keys {
			if len(overrides[k.Key]) == 0 {
				sum.Keys = append(sum.Keys, k)
			}
			overrides[k.Key] = append(overrides[k.Key], throttle.Limit{Kind: d.Kind, Rate: k.Rate, Capacity: k.Capacity})
		}
	}
	sum.Limit = q.Sharded.Join(parts[0].Name, limits)
	sum.Origin = q.joinOrigins(parts)
	for i, k := range sum.Keys {
		o := q.Sharded.Join(parts[0].Name, overrides[k.Key])
		sum.Keys[i].Rate, sum.Keys[i].Capacity = o.Rate, o.Capacity
	}
	return sum
}

// joinOrigins returns the origin of the newest part that was set, or else of the first part. Its Config
// is the sum of the parts'.
func (q *Queues) joinOrigins(parts []Definition) throttle.Origin {
	sum := parts[0].Origin
	var configs []throttle.Limit
	for _, d := range parts {
		if o := d.Origin; o.Set && (!sum.Set || o.At.After(sum.At)) {
			sum = o
		}
		if d.Origin.Config != nil {
			configs = append(configs, *d.Origin.Config)
		}
	}
	if sum.Config = nil; len(configs) == len(parts) {
		sum.Config = new(q.Sharded.Join(parts[0].Name, configs))
	}
	return sum
}

// joinBlocks adds the blocks of another shard. If a key is blocked in both, the later end counts.
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

// Meters reads the meters of keys of a limit, in the order of the keys.
func (q *Queues) Meters(ctx context.Context, limit string, keys []string) (meters []waitdb.Meter, err error) {
	read, err := readAll(ctx, q.places(limit, nil), func(ctx context.Context, in *Queues) ([]waitdb.Meter, error) {
		var needs []throttle.Need
		for _, key := range keys {
			if slices.Contains(q.Sharded.Places(limit, &key), *in.part) {
				needs = append(needs, throttle.Need{Limit: limit, Key: key})
			}
		}
		return ReadMeters(ctx, in.Limiter, needs)
	})
	for _, m := range slices.Concat(read...) {
		meters = joinMeter(meters, m)
	}
	slices.SortFunc(meters, func(a, b waitdb.Meter) int { return slices.Index(keys, a.Key) - slices.Index(keys, b.Key) })
	return meters, err
}

// joinMeter adds a meter of another shard to the one of the same key.
func joinMeter(meters []waitdb.Meter, m waitdb.Meter) []waitdb.Meter {
	i := slices.IndexFunc(meters, func(other waitdb.Meter) bool { return other.Key == m.Key })
	if i < 0 {
		return append(meters, m)
	}
	sum := &meters[i]
	sum.Capacity += m.Capacity
	sum.Left += m.Left
	sum.Owed += m.Owed
	sum.Wanted += m.Wanted
	sum.Reserved += m.Reserved
	sum.PerSecond += m.PerSecond
	sum.NextIn, sum.Known = min(sum.NextIn, m.NextIn), sum.Known && m.Known
	return meters
}

// Usage is how much of a key of a limit is used.
type Usage struct {
	waitdb.Meter
	// Remaining is the number of permits that a new call could take now. It is 0 while the limit is
	// paused or the key is blocked.
	Remaining  int
	ResetAfter time.Duration // time until all permits are free again, if no call takes more
	Missing    string        // why the limit cannot be used; "" if it can
}

// Peek returns how much of a key of a limit is used, without taking a permit. For a divided limit,
// the permits are the sums over the shards.
func (q *Queues) Peek(ctx context.Context, limit, key string) (u Usage, err error) {
	parts, err := readAll(ctx, q.places(limit, &key), func(ctx context.Context, in *Queues) (throttle.Decision, error) {
		return in.Limiter.AllowN(ctx, limit, key, 0) // always allowed, so it does not say when the next permit comes
	})
	if err != nil {
		return u, err
	}
	for _, d := range parts {
		if d.Outcome == throttle.NoLimit {
			return Usage{Missing: d.String()}, nil
		}
		u.Remaining, u.ResetAfter = u.Remaining+d.Remaining, max(u.ResetAfter, d.ResetAfter)
	}
	meters, err := q.Meters(ctx, limit, []string{key})
	if err == nil && len(meters) > 0 {
		u.Meter = meters[0]
	}
	return u, err
}

func (q *Queues) partIn(part shard.Shard, limit throttle.Limit) (throttle.Limit, error) {
	own, err := q.Sharded.LimitsIn(part, []throttle.Limit{limit})
	return append(own, limit)[0], err
}

// SetLimit changes or creates a limit. Each shard gets its part of a divided limit. A limit that
// cannot be divided fails at the first shard. If Redis fails later, some shards are changed.
func (q *Queues) SetLimit(ctx context.Context, limit throttle.Limit) error {
	return q.EachPlace(limit.Name, nil, func(l *waitdb.DB, part shard.Shard) error {
		own, err := q.partIn(part, limit)
		if err != nil {
			return err
		}
		return l.Set(ctx, own)
	})
}

// SetKey sets the override of a key. If the limit is divided, each shard gets its part of the
// override.
func (q *Queues) SetKey(ctx context.Context, limit, key string, o throttle.Override) error {
	_, divided := q.Sharded.Home(limit)
	return q.EachPlace(limit, &key, func(l *waitdb.DB, part shard.Shard) error {
		own := o
		if divided {
			is, _, err := l.Internals().Key(ctx, limit, "")
			if err == nil {
				own, err = part.DivideOverride(is.Kind, o)
			}
			if err != nil {
				return err
			}
		}
		return l.SetKey(ctx, limit, key, own)
	})
}

// CountWaiting counts the jobs that wait for a limit and need at least cost permits at once. The
// cost can differ between shards.
func (q *Queues) CountWaiting(ctx context.Context, limit string, cost func(shard.Shard) int) (jobs int, err error) {
	counts, err := readAll(ctx, q.places(limit, nil), func(ctx context.Context, in *Queues) (int, error) {
		return in.Limiter.CountWaiting(ctx, limit, cost(*in.part))
	})
	for _, n := range counts {
		jobs += n
	}
	return jobs, err
}
