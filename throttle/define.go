package throttle

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/script"
)

// Define implements Limiter. All limits are checked before the first is written,
// so a mistake in one changes nothing. What it was told it tells Redis again, if
// that turns out to have lost its data; a limit that was deleted stays deleted.
//
// The limits are written one after the other, a round trip each: where Redis fails
// in between, those before have changed. To call it again with all is safe. A change
// of a rate looks through all keys of the Redis once: see carry.
func (r *Redis) Define(ctx context.Context, limits ...Limit) error {
	if err := validate(limits...); err != nil {
		return err
	}
	for _, l := range limits {
		r.remember(l)
		changed, err := r.define(ctx, "file", l)
		if err != nil {
			return err
		}
		if changed == 2 {
			r.log.Warn("the config's definition replaced one set at run time", "limit", l.Name, "now", l.String())
		}
	}
	return nil
}

// remember keeps what Define was told, to say it again if Redis loses it. It is
// remembered before it is written, so that a Redis which is away just now hears it
// later.
func (r *Redis) remember(l Limit) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l.Apps, l.Overrides = slices.Clone(l.Apps), maps.Clone(l.Overrides)
	r.told[l.Name] = l
}

// defineAgain defines all that Define was told, if the limit that Redis lost is
// among it, and reports whether it is. What was set at run time before is lost.
// Many calls miss a limit at once: what is defined by then changes nothing.
func (r *Redis) defineAgain(ctx context.Context, lost string) (bool, error) {
	r.mu.Lock()
	told := maps.Clone(r.told)
	r.mu.Unlock()
	if _, ok := told[lost]; !ok {
		return false, nil
	}
	count := 0
	for _, name := range slices.Sorted(maps.Keys(told)) {
		changed, err := r.define(ctx, "again", told[name])
		if err != nil {
			return false, err
		}
		count += min(changed, 1)
	}
	if count > 0 {
		r.log.Warn("Redis has lost its limits: they are defined again as the config says", "limit", lost, "defined", count)
	}
	return true, nil
}

// Set implements Limiter. What a config file says later in the same words as before
// does not undo it; other words do, and a line in the log says so.
func (r *Redis) Set(ctx context.Context, l Limit) error {
	if err := validate(l); err != nil {
		return err
	}
	_, err := r.define(ctx, "set", l)
	return err
}

// define writes a definition and carries the limit's meters over to another rate.
// It returns what lua/limits/define.lua does: 0 unchanged, 1 changed, 2 replaced other
// words that were set at run time.
func (r *Redis) define(ctx context.Context, source string, l Limit) (int, error) {
	l.Paused = false
	args := append([]any{l.Name, source, l.String(), by(ctx), new(script.Sent)}, l.fields(l.edgesText(time.Now().UnixMicro()))...)
	reply, err := r.run(ctx, defineScript, args...).Int64Slice()
	if err != nil {
		return 0, unavailable(err)
	}
	if reply[1] == 1 && l.Kind != Concurrency {
		err = r.carry(ctx, l)
	}
	if source != "set" && (len(l.Overrides) > 0 || reply[2] == 1) {
		err = errors.Join(err, r.defineKeys(ctx, l))
	}
	return int(reply[0]), unavailable(err)
}

// fields are the names and values of a definition in Redis, with the edges of its calendar. All
// defaults are spelled out, so the scripts know none but that of max_block_us, which
// definitions of older versions do not have.
//
// n and period_us are what a meter counts by, rate_n and per_us what the limit says:
// they differ by the margin. Of a field that is there twice the later value counts:
// the first n and period_us are those of a concurrency limit, which has no rate.
func (l Limit) fields(edges string) []any {
	fields := []any{
		"kind", string(l.Kind), "capacity", l.MaxCost(), "n", l.MaxCost(), "period_us", 0,
		"rate_n", l.Rate.N, "per_us", l.Rate.Per.Microseconds(), "margin_us", l.Margin.Microseconds(),
	}
	add := func(has bool, more ...any) {
		if has {
			fields = append(fields, more...)
		}
	}
	add(l.Kind == Concurrency, "lease_us", l.lease().Microseconds())
	add(l.Kind != Concurrency, "n", l.Rate.N, "period_us", l.periodUS())
	add(l.Kind == FixedWindow, "offset_us", l.offsetUS())
	add(edges != "", "edges", edges)
	add(l.MaxBlock != 0, "max_block_us", l.MaxBlock.Microseconds())
	add(l.Zone != "", "zone", l.Zone)
	add(len(l.Apps) > 0, "apps", strings.Join(l.Apps, ","))
	if a := l.Adapt; a != nil {
		add(true, "adapt_n", a.Min.N, "adapt_per_us", a.Min.Per.Microseconds())
		add(true, "adapt_share", a.share(l.Rate), "adapt_latency_us", a.Latency.Microseconds())
	}
	return fields
}

// Delete implements Limiter. It stays deleted until Set or Define makes it again:
// a limit that was deleted on purpose is told from one that Redis lost.
func (r *Redis) Delete(ctx context.Context, name string) error {
	r.mu.Lock()
	delete(r.told, name)
	r.mu.Unlock()
	c := r.callers.Next()
	defer r.callers.Done(c)
	return r.known(ctx, name, deleteScript, name, by(ctx), c.Name, c.Calls)
}

// Pause implements Limiter.
func (r *Redis) Pause(ctx context.Context, name string) error {
	return r.known(ctx, name, pauseScript, name, 1, by(ctx))
}

// Resume implements Limiter.
func (r *Redis) Resume(ctx context.Context, name string) error {
	return r.known(ctx, name, pauseScript, name, 0, by(ctx))
}

// Limits implements Limiter. It takes a round trip, and one more for each limit, so
// it is for people and for a config's reload, not for every job.
func (r *Redis) Limits(ctx context.Context) ([]Limit, error) {
	names, err := r.rdb.SMembers(ctx, r.prefix+"limits").Result()
	if err != nil {
		return nil, unavailable(err)
	}
	slices.Sort(names)
	var limits []Limit
	for _, name := range names {
		l, err := r.definition(ctx, name)
		if errors.Is(err, ErrNoLimit) { // deleted since
			continue
		}
		if err != nil {
			return nil, err
		}
		limits = append(limits, l)
	}
	return limits, nil
}

// definition reads one limit. One that lacks a part counts as lost.
func (r *Redis) definition(ctx context.Context, name string) (Limit, error) {
	fields, err := r.rdb.HGetAll(ctx, r.prefix+"limit:"+name).Result()
	if err != nil {
		return Limit{}, unavailable(err)
	}
	l, complete := ParseDefinition(name, fields)
	if !complete {
		return Limit{}, noLimit(name)
	}
	return l, nil
}

// ParseDefinition returns the limit that a definition in Redis says, and whether the definition
// has all its parts. Then the limit's text, but for a pause, is the one that it was defined in. It
// is for other packages of this module.
func ParseDefinition(name string, fields map[string]string) (l Limit, complete bool) {
	us := func(field string) time.Duration { return microseconds(number(fields[field])) }
	l = Limit{
		Name: name, Kind: Kind(fields["kind"]), Rate: Rate{int(number(fields["rate_n"])), us("per_us")},
		Margin: us("margin_us"), Zone: fields["zone"], Lease: us("lease_us"), MaxBlock: us("max_block_us"),
	}
	if l.Kind == Funnel || l.Kind == TokenBucket || l.Kind == Concurrency {
		l.Capacity = int(number(fields["capacity"]))
	}
	if fields["adapt_n"] != "" {
		l.Adapt = &Adapt{Rate{int(number(fields["adapt_n"])), us("adapt_per_us")}, us("adapt_latency_us")}
	}
	if fields["apps"] != "" {
		l.Apps = strings.Split(fields["apps"], ",")
	}
	if l.Validate() != nil || l.String() != fields["text"] {
		return l, false
	}
	edges := fields["edges"]
	if edges == "" {
		edges = l.edgesText(time.Now().UnixMicro())
	}
	for i, field := range l.fields(edges) {
		if i%2 == 0 && fields[field.(string)] == "" {
			return l, false
		}
	}
	l.Paused = fields["paused"] != ""
	return l, true
}

// ExtendCalendars stores the windows around a moment, in microseconds of Redis's clock,
// for limits that follow a calendar, where a script says that it comes to their last. The
// boundaries are the same whoever computes them, so it does not matter who does it first.
// The script takes them only if the limit has not changed since it was read.
func (r *Redis) ExtendCalendars(ctx context.Context, names []string, nowUS int64) error {
	for _, name := range names {
		l, err := r.definition(ctx, name)
		if errors.Is(err, ErrNoLimit) {
			continue
		}
		if err != nil {
			return err
		}
		l.Paused = false
		edges := l.edgesText(nowUS)
		if err := r.run(ctx, edgesScript, name, l.String(), edges).Err(); err != nil {
			return unavailable(err)
		}
	}
	return nil
}

// runExtended runs a script that replies at first whose calendars must be extended, and
// when that was: it extends them and runs the script again. To do both in one script would
// need Go's time zones in Lua. Nothing has changed before, so to ask again is safe.
func (r *Redis) runExtended(ctx context.Context, script *script.Script, args ...any) (rest []any, err error) {
	for range 3 {
		reply, err := r.run(ctx, script, args...).Slice()
		if err != nil {
			return nil, unavailable(err)
		}
		names := strings.Fields(reply[0].(string))
		if len(names) == 0 {
			return reply[1:], nil
		}
		if err := r.ExtendCalendars(ctx, slices.Compact(names), reply[1].(int64)); err != nil {
			return nil, err
		}
	}
	return nil, errCalendar
}

// carryBatch is how many meters one call of the script carries over: less than
// a millisecond of Redis.
const carryBatch = 50

// carry has the meters of a limit whose rate was changed live for as long as
// they matter at the new one. It looks through the names of all keys of the
// Redis, a part at a time. A meter outlives what it counts by a minute, so
// nothing is forgotten if this takes less.
//
// A meter that is asked reads what it counts by the new rate anyhow. This is for
// those that nobody asks: before they expire by the old rate, and before the rate
// changes again, as a meter knows only the last change. There is no list of a
// limit's meters, as every call would have to keep it.
func (r *Redis) carry(ctx context.Context, l Limit) error {
	var node redis.Cmdable = r.rdb
	if cluster, ok := r.rdb.(*redis.ClusterClient); ok { // its SCAN goes to any node
		master, err := cluster.MasterForKey(ctx, r.prefix)
		if err != nil {
			return err
		}
		node = master
	}
	prefix := r.prefix + "m:" + string(l.Kind) + ":" + l.Name + "|"
	args := []any{l.Name}
	carryAll := func() error {
		if len(args) == 1 {
			return nil
		}
		_, err := r.runExtended(ctx, carryScript, args...)
		args = args[:1]
		return err
	}
	scan := node.Scan(ctx, 0, script.Literal(prefix)+"*", 1000).Iterator()
	for scan.Next(ctx) {
		if args = append(args, strings.TrimPrefix(scan.Val(), prefix)); len(args) > carryBatch {
			if err := carryAll(); err != nil {
				return err
			}
		}
	}
	return cmp.Or(scan.Err(), carryAll())
}
