package throttle

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/lua"
)

// Override is what one key of a limit counts by instead of the limit's own words,
// such as the pace that one host asks for. It can be slower or faster than the
// limit. One of Rate and Capacity is required.
type Override struct {
	// Rate is the key's own; of a FixedWindow per the limit's own period. The zero
	// value means the limit's.
	Rate Rate
	// Capacity is the key's own, for kinds that have one. The zero value means the
	// limit's.
	Capacity int
	// For is how long that holds, a microsecond at least. The zero value means until
	// UnsetKey.
	For time.Duration
}

// String is the override as UnmarshalText reads it, such as "1/10s capacity 1", and
// for how long it holds.
func (o Override) String() string {
	var parts []string
	if o.Rate != (Rate{}) {
		parts = append(parts, o.Rate.String())
	}
	if o.Capacity > 0 {
		parts = append(parts, fmt.Sprintf("capacity %d", o.Capacity))
	}
	if o.For > 0 {
		parts = append(parts, "for "+o.For.String())
	}
	return strings.Join(parts, " ")
}

// UnmarshalText reads a rate, a capacity or both: "1/10s", "capacity 3", "1/10s
// capacity 1". The error is a [*FieldError]. How long it holds is no part of the
// text: a config file says it for as long as it stands there.
func (o *Override) UnmarshalText(text []byte) (err error) {
	const want = "want a rate such as 1/10s, capacity N, or both: 1/10s capacity 1"
	*o = Override{}
	rate, capacity, both := strings.Cut(strings.TrimSpace(string(text)), "capacity")
	if both {
		if o.Capacity, err = strconv.Atoi(strings.TrimSpace(capacity)); err != nil || o.Capacity < 1 {
			return fieldError("override", string(text), want)
		}
	}
	if rate = strings.TrimSpace(rate); rate != "" {
		o.Rate, err = ParseRate(rate)
	} else if !both {
		return fieldError("override", string(text), want)
	}
	return err
}

// With is the limit as a key with the override counts it. A FixedWindow keeps its
// period whatever the override says, since windows are the limit's and not a key's.
func (l Limit) With(o Override) Limit {
	if per := l.Rate.Per; o.Rate != (Rate{}) {
		if l.Rate = o.Rate; l.Kind == FixedWindow {
			l.Rate.Per = per
		}
	}
	if o.Capacity != 0 {
		l.Capacity = o.Capacity
	}
	return l
}

// validate reports what is wrong with an override of a limit that is valid itself:
// with its own words, and with the limit that the key would have. A capacity is
// handed on as it was given, so that the kinds that have none refuse it.
func (o Override) validate(l Limit) error {
	var errs []error
	if o.Rate == (Rate{}) && o.Capacity == 0 {
		errs = append(errs, &FieldError{"rate", "missing", "want the key's own rate, such as 1/10s, or its capacity"})
	}
	if l.Kind == FixedWindow && o.Rate != (Rate{}) && o.Rate.Per != l.Rate.Per {
		per := Rate{1, l.Rate.Per}.String()
		errs = append(errs, fieldError("rate", o.Rate, "want N%s: the keys of a fixed_window share its windows", per[1:]))
	}
	if o.For != 0 && o.For < time.Microsecond || o.For > maxFill {
		errs = append(errs, fieldError("for", o.For, "want a microsecond to a hundred years"))
	}
	l.Overrides, l.Adapt = nil, nil
	if l = l.With(o); l.Kind == FixedWindow || l.Kind == SlidingLog || l.Kind == SlidingWindow {
		l.Capacity = o.Capacity
	}
	return errors.Join(append(errs, l.Validate())...)
}

// validateKey is validate, for a key that is named beside it.
func (o Override) validateKey(l Limit, key string) error {
	if err := validMeter(l.Name, key); err != nil {
		return err
	}
	return o.validate(l)
}

// permits are the numbers that the scripts want, the period in microseconds; 0 where
// the limit's own count.
func (o Override) permits() (n int, perUS int64, capacity int) {
	return o.Rate.N, o.Rate.Per.Microseconds(), o.Capacity
}

// SetKey implements Limiter. It takes two round trips, the first to hold the
// override against the limit. Where the limit changes its kind in between the
// override is stored, and without effect until it has the old kind again.
func (r *Redis) SetKey(ctx context.Context, limit, key string, o Override) error {
	if err := validMeter(limit, key); err != nil {
		return err
	}
	l, err := r.definition(ctx, limit)
	if errors.Is(err, redis.Nil) {
		return fmt.Errorf("%w: %s", ErrNoLimit, limit)
	}
	if err != nil {
		return unavailable(err)
	}
	if err := o.validate(l); err != nil {
		return err
	}
	n, perUS, capacity := o.permits()
	return r.known(ctx, limit, lua.SetKey, limit, key, string(l.Kind), n, perUS, capacity, o.For.Microseconds(), by(ctx), o.String())
}

// UnsetKey implements Limiter.
func (r *Redis) UnsetKey(ctx context.Context, limit, key string) error {
	if err := validMeter(limit, key); err != nil {
		return err
	}
	return r.known(ctx, limit, lua.UnsetKey, limit, key, by(ctx))
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
	return unavailable(r.run(ctx, lua.FileKeys, args...).Err())
}

// KeyState is what differs for one key of a limit from what the limit says. A
// [Local] limiter fills in the override alone, with a Share of 1: it does not adapt.
type KeyState struct {
	Key string
	// Override is what was set for the key, by a config file where File is true;
	// the zero value where nothing was. Until is when it ends by the limiter's
	// clock, and For how long that is from now; both are zero where it does not.
	Override
	File  bool
	Until time.Time
	// Share is which part of its rate the key goes by at present, from 0 to 1, where
	// the limit adapts, and Now is that pace, such as "4.5/s": empty where it is all.
	Share float64
	Now   string
	// Refused is how often in a row the other side refused calls, and Slowed whether
	// refusals have slowed the key down. Latency is what it is slowed down by where
	// that is longer than wanted, smoothed.
	Refused int
	Slowed  bool
	Latency time.Duration
}

// Keys implements Limiter. It reads all keys of the limit that differ in one reply,
// and takes three round trips.
func (r *Redis) Keys(ctx context.Context, limit string) ([]KeyState, error) {
	records, err := r.rdb.HGetAll(ctx, r.prefix+"overrides:"+limit).Result()
	if err != nil || len(records) == 0 {
		return nil, unavailable(err)
	}
	l, err := r.definition(ctx, limit)
	if errors.Is(err, redis.Nil) { // deleted since
		return nil, nil
	}
	if err != nil {
		return nil, unavailable(err)
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
	if errors.Is(err, redis.Nil) {
		return l, state, fmt.Errorf("%w: %s", ErrNoLimit, limit)
	}
	if err != nil {
		return l, state, unavailable(err)
	}
	record, err := r.rdb.HGet(ctx, r.prefix+"overrides:"+limit, key).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return l, state, unavailable(err)
	}
	now, err := r.rdb.Time(ctx).Result()
	return l, readKey(l, key, record, now), unavailable(err)
}

// differs reports whether a record says anything of today. It is kept for an hour
// after that, so that Settle gives nothing back at a rate that has changed since.
func (k KeyState) differs() bool { return k.Override != Override{} || k.Share < 1 || k.Refused > 0 }

// readKey reads a record as lua/limits/include/record.lua writes it: 14 words, by number
// here. Of anything else it says that nothing differs.
func readKey(l Limit, key, record string, now time.Time) KeyState {
	words := strings.Fields(record)
	number := func(i int) int64 {
		n, _ := strconv.ParseInt(words[i], 10, 64)
		return n
	}
	k := KeyState{Key: key, Share: 1}
	if len(words) < 14 {
		return k
	}
	until := time.UnixMicro(number(5))
	if ends := number(5) > 0; words[0] != "-" && Kind(words[1]) == l.Kind && (!ends || until.After(now)) {
		k.File = words[0] == "file"
		k.Override = Override{Rate: Rate{int(number(2)), time.Duration(number(3)) * time.Microsecond}, Capacity: int(number(4))}
		if ends {
			k.Until, k.For = until, until.Sub(now)
		}
	}
	k.Refused = int(number(8))
	if l.Adapt == nil {
		return k
	}
	k.Share, k.Slowed = float64(number(7))/wholeShare, number(10) < wholeShare
	k.Latency = time.Duration(number(11)) * time.Microsecond
	if k.Share < 1 {
		k.Now = pace(l.With(k.Override).Rate, k.Share)
	}
	return k
}
