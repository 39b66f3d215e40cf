package throttle

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// SetKey implements Limiter. It takes two round trips, the first to hold the
// override against the limit. Where the limit changes its kind in between the
// override is stored, and without effect until it has the old kind again.
func (r *Redis) SetKey(ctx context.Context, limit, key string, o Override) error {
	if err := validMeter(limit, key); err != nil {
		return err
	}
	l, err := r.definition(ctx, limit)
	if err == nil {
		err = o.validate(l)
	}
	if err != nil {
		return err
	}
	n, perUS, capacity := o.permits()
	return r.known(ctx, limit, setKeyScript, limit, key, by(ctx), o.String(), string(l.Kind), n, perUS, capacity, o.For.Microseconds())
}

// UnsetKey implements Limiter.
func (r *Redis) UnsetKey(ctx context.Context, limit, key string) error {
	if err := validMeter(limit, key); err != nil {
		return err
	}
	return r.known(ctx, limit, setKeyScript, limit, key, by(ctx), "")
}

// defineKeys makes the overrides of a limit known that its definition has. It sends
// them all, with the words that the script compares with those it was told last:
// what is the same there stays, even where SetKey has changed it since.
func (r *Redis) defineKeys(ctx context.Context, l Limit) error {
	var words strings.Builder
	args := []any{l.Name, string(l.Kind), ""}
	for _, key := range slices.Sorted(maps.Keys(l.Overrides)) {
		o := l.Overrides[key]
		fmt.Fprintf(&words, "%s\t%s %s\n", key, l.Kind, o)
		n, perUS, capacity := o.permits()
		args = append(args, key, n, perUS, capacity)
	}
	args[2] = words.String()
	return unavailable(r.run(ctx, fileKeysScript, args...).Err())
}

// Keys implements Limiter. It reads all keys of the limit that differ in one reply,
// and takes three round trips.
func (r *Redis) Keys(ctx context.Context, limit string) ([]KeyState, error) {
	records, err := r.rdb.HGetAll(ctx, r.prefix+"overrides:"+limit).Result()
	if err != nil || len(records) == 0 {
		return nil, unavailable(err)
	}
	l, err := r.definition(ctx, limit)
	if errors.Is(err, ErrNoLimit) { // deleted since
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	now, err := r.rdb.Time(ctx).Result()
	if err != nil {
		return nil, unavailable(err)
	}
	var keys []KeyState
	for _, key := range slices.Sorted(maps.Keys(records)) {
		if k := readKey(l, key, records[key], now); k.differs() {
			keys = append(keys, k)
		}
	}
	return keys, nil
}

// Key returns a limit as it is in force, and what differs from it for a key: its
// With(state.Override) is what the key counts by. It takes three round trips, and fails
// with an error that wraps ErrNoLimit where there is no such limit.
func (r *Redis) Key(ctx context.Context, limit, key string) (l Limit, state KeyState, err error) {
	l, err = r.definition(ctx, limit)
	if err != nil {
		return l, state, err
	}
	record, err := r.rdb.HGet(ctx, r.prefix+"overrides:"+limit, key).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return l, state, unavailable(err)
	}
	now, err := r.rdb.Time(ctx).Result()
	return l, readKey(l, key, record, now), unavailable(err)
}

// readKey reads a record as lua/limits/include/record.lua writes it: 14 words, by number
// here. Of anything else it says that nothing differs.
func readKey(l Limit, key, record string, now time.Time) KeyState {
	words := strings.Fields(record)
	k := KeyState{Key: key, Share: 1}
	if len(words) < 14 {
		return k
	}
	var n [14]int64
	for i := range n {
		n[i] = number(words[i])
	}
	until := time.UnixMicro(n[5])
	if ends := n[5] > 0; words[0] != "-" && Kind(words[1]) == l.Kind && (!ends || until.After(now)) {
		k.File = words[0] == "file"
		k.Override = Override{Rate: Rate{int(n[2]), microseconds(n[3])}, Capacity: int(n[4])}
		if ends {
			k.Until, k.For = until, until.Sub(now)
		}
	}
	k.Refused = int(n[8])
	if l.Adapt == nil {
		return k
	}
	k.Share, k.Slowed, k.Latency = float64(n[7])/wholeShare, n[10] < wholeShare, microseconds(n[11])
	if k.Share < 1 {
		k.Now = pace(l.With(k.Override).Rate, k.Share)
	}
	return k
}

// Block implements Limiter. The moment is of this process's clock, and compared
// with Redis's.
func (r *Redis) Block(ctx context.Context, limit, key string, until time.Time) error {
	if err := validMeter(limit, key); err != nil {
		return err
	}
	return r.known(ctx, limit, blockScript, limit, key, until.UnixMicro(), by(ctx))
}

// Reset implements Limiter.
func (r *Redis) Reset(ctx context.Context, limit, key string) error {
	if err := validMeter(limit, key); err != nil {
		return err
	}
	return r.known(ctx, limit, resetScript, limit, key, by(ctx))
}

// Blocked is a key of a limit that is held shut, by Block or by what the other side
// answered.
type Blocked struct {
	Key string
	// Until is when it opens, by Redis's clock, and For is how far off that is.
	Until time.Time
	For   time.Duration
}

// Blocks lists the keys of a limit that are held shut now, in the order in which
// they open. A limit that does not exist has none. It takes two round trips, and
// reads all such keys in one of them.
func (r *Redis) Blocks(ctx context.Context, limit string) ([]Blocked, error) {
	ends, err := r.rdb.ZRangeWithScores(ctx, r.prefix+"blocked:"+limit, 0, -1).Result()
	if err != nil || len(ends) == 0 {
		return nil, unavailable(err)
	}
	now, err := r.rdb.Time(ctx).Result()
	if err != nil {
		return nil, unavailable(err)
	}
	var blocks []Blocked
	for _, end := range ends {
		if until := time.UnixMicro(int64(end.Score)); until.After(now) {
			key, _ := end.Member.(string)
			blocks = append(blocks, Blocked{key, until, until.Sub(now)})
		}
	}
	return blocks, nil
}

// BlockFor shuts meters for a while by Redis's clock, and never shorter than they are
// shut already: several who hear different times from the other side end up with the
// longest. Of limits that do not exist it does nothing. The needs' costs do not
// matter.
func (r *Redis) BlockFor(ctx context.Context, d time.Duration, needs ...Need) error {
	for _, n := range needs {
		if err := validMeter(n.Limit, n.Key); err != nil {
			return err
		}
	}
	args := appendMeters([]any{min(d, maxFill).Microseconds()}, needs)
	return unavailable(r.run(ctx, blockForScript, args...).Err())
}

// Accepted tells the limiter that the other side did what a job's call asked for,
// and how long that took: the refusals before are over. It is of use where the
// job's decision says Heard.
func (r *Redis) Accepted(ctx context.Context, d Decision, latency time.Duration) error {
	args := []any{d.At.UnixMicro(), max(0, latency).Microseconds()}
	for _, t := range d.Taken {
		args = append(args, t.Limit, t.Key)
	}
	return unavailable(r.run(ctx, acceptedScript, args...).Err())
}

// Overloaded tells the limiter that the other side was too busy for a call that was
// allowed at a moment, and did not say until when, as with 503 Service Unavailable:
// meters of limits that adapt slow down as by a refusal. Nothing is shut, and what
// becomes of the job is not the limiter's. The needs' costs do not matter.
func (r *Redis) Overloaded(ctx context.Context, at time.Time, needs ...Need) error {
	args := appendMeters([]any{at.UnixMicro(), -1}, needs)
	return unavailable(r.run(ctx, acceptedScript, args...).Err())
}
