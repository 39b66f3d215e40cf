package throttle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/script"
)

// What a definition in Redis comes from.
const (
	fromFile  = "file"  // Define
	fromAgain = "again" // Define, said again because Redis lost the limit
	fromSet   = "set"   // Set
)

// define remembers each limit before it is written, so that a Redis which is away just now hears of
// it later.
func (s *shared) define(ctx context.Context, limits []Limit) error {
	for _, l := range limits {
		s.mu.Lock()
		l.Apps, l.Overrides = slices.Clone(l.Apps), maps.Clone(l.Overrides)
		s.defined[l.Name] = l
		s.mu.Unlock()
		changed, err := s.write(ctx, fromFile, l)
		if err != nil {
			return err
		}
		if changed == 2 {
			s.log.Warn("the config's definition replaced one set at run time", "limit", l.Name, "now", l.String())
		}
	}
	return nil
}

// defineAgain defines all limits that Define was given, if the one that Redis lost is among them,
// and reports whether it is. What was set at run time before is lost.
func (s *shared) defineAgain(ctx context.Context, lost string) (bool, error) {
	s.mu.Lock()
	defined := maps.Clone(s.defined)
	s.mu.Unlock()
	if _, ok := defined[lost]; !ok {
		return false, nil
	}
	count := 0
	for _, name := range slices.Sorted(maps.Keys(defined)) {
		changed, err := s.write(ctx, fromAgain, defined[name])
		if err != nil {
			return false, err
		}
		count += min(changed, 1)
	}
	if count > 0 { // many calls miss a limit at once
		s.log.Warn("Redis has lost its limits: they are defined again as the config says", "limit", lost, "defined", count)
	}
	return true, nil
}

func (s *shared) set(ctx context.Context, l Limit) error {
	_, err := s.write(ctx, fromSet, l)
	return err
}

// write writes a definition, and carries the limit's meters over to another rate. It returns what
// lua/limits/define.lua does: 0 unchanged, 1 changed, 2 replaced a definition that was set at run
// time.
func (s *shared) write(ctx context.Context, source string, l Limit) (changed int, err error) {
	l.Paused = false
	edges := l.meter(0).EdgesText(time.Now().UnixMicro())
	args := append([]any{l.Name, source, l.String(), script.Actor(ctx), new(script.Sent)}, l.fields(edges)...)
	reply, err := s.run(ctx, defineScript, args...).Int64Slice()
	if err != nil {
		return 0, unavailable(err)
	}
	if reply[1] == 1 && l.Kind != Concurrency {
		err = s.carry(ctx, l)
	}
	if source != fromSet && (len(l.Overrides) > 0 || reply[2] == 1) {
		err = errors.Join(err, s.defineKeys(ctx, l))
	}
	return int(reply[0]), unavailable(err)
}

// fields returns the names and values of a definition in Redis, with the boundaries of its
// calendar. All defaults are spelled out, so the scripts know none except that of max_block_us.
//
// n and period_us are what a meter counts by, rate_n and per_us what the limit says: they differ by
// the margin. If a field is there twice the later value counts: the first n and period_us are those
// of a concurrency limit, which has no rate.
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
	counts := l.meter(0)
	add(l.Kind == Concurrency, "lease_us", l.lease().Microseconds())
	add(l.Kind != Concurrency, "n", l.Rate.N, "period_us", counts.PeriodUS())
	add(l.Kind == FixedWindow, "offset_us", counts.OffsetUS())
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

// delete also forgets what Define was given: a limit that was deleted on purpose is not one that
// Redis lost.
func (s *shared) delete(ctx context.Context, name string) error {
	s.mu.Lock()
	delete(s.defined, name)
	s.mu.Unlock()
	c := s.callers.Next()
	defer s.callers.Done(c)
	return s.change(ctx, name, deleteScript, name, script.Actor(ctx), c.Name, c.Calls)
}

func (s *shared) pause(ctx context.Context, name string, paused bool) error {
	number := 0
	if paused {
		number = 1
	}
	return s.change(ctx, name, pauseScript, name, number, script.Actor(ctx))
}

func (s *shared) limits(ctx context.Context) ([]Limit, error) {
	names, err := s.rdb.SMembers(ctx, s.prefix+"limits").Result()
	if err != nil {
		return nil, unavailable(err)
	}
	slices.Sort(names)
	var limits []Limit
	for _, name := range names {
		l, err := s.definition(ctx, name)
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

// definition reads one limit. A definition that lacks a part counts as lost.
func (s *shared) definition(ctx context.Context, name string) (Limit, error) {
	fields, err := s.rdb.HGetAll(ctx, s.prefix+"limit:"+name).Result()
	if err != nil {
		return Limit{}, unavailable(err)
	}
	l, complete := parseDefinition(name, fields)
	if !complete {
		return Limit{}, noLimit(name)
	}
	return l, nil
}

// parseDefinition returns the limit that a definition in Redis says, and whether the definition has
// all its parts. Then the limit's text, except for a pause, is the one that it was defined in.
func parseDefinition(name string, fields map[string]string) (l Limit, complete bool) {
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
	edges := cmp.Or(fields["edges"], l.meter(0).EdgesText(time.Now().UnixMicro()))
	for i, field := range l.fields(edges) {
		if i%2 == 0 && fields[field.(string)] == "" {
			return l, false
		}
	}
	l.Paused = fields["paused"] != ""
	return l, true
}

// extendCalendars stores the windows around a time, in microseconds of Redis's clock, for limits
// that follow a calendar, because a script has come to their last window. Whoever computes the
// boundaries gets the same ones, so it does not matter who does it first. The script ignores them
// if the limit has changed since it was read.
func (s *shared) extendCalendars(ctx context.Context, names []string, nowUS int64) error {
	for _, name := range names {
		l, err := s.definition(ctx, name)
		if errors.Is(err, ErrNoLimit) {
			continue
		}
		if err != nil {
			return err
		}
		l.Paused = false
		if err := s.run(ctx, edgesScript, name, l.String(), l.meter(0).EdgesText(nowUS)).Err(); err != nil {
			return unavailable(err)
		}
	}
	return nil
}

// extended runs a script that replies first which calendars must be extended, and the time. It
// extends them and runs the script again: one script could not do both, because Lua does not know
// time zones. The script has changed nothing before, so running it again is safe.
func (s *shared) extended(ctx context.Context, run func() ([]any, error)) (rest []any, err error) {
	for range 3 {
		reply, err := run()
		if err != nil {
			return nil, unavailable(err)
		}
		names := strings.Fields(reply[0].(string))
		if len(names) == 0 {
			return reply[1:], nil
		}
		if err := s.extendCalendars(ctx, slices.Compact(names), reply[1].(int64)); err != nil {
			return nil, err
		}
	}
	return nil, errCalendar
}

// carryBatch is how many meters one call of the script carries over: less than a millisecond of
// Redis's time.
const carryBatch = 50

// carry makes the meters of a limit whose rate was changed live for as long as they matter at the
// new rate. It looks through the names of all keys of the Redis, some at a time. A meter outlives
// what it counts by a minute, so nothing is forgotten if this takes less.
//
// A meter that is asked reads what it counts by the new rate anyway. This is for those that nobody
// asks, before they expire by the old rate and before the rate changes again, because a meter knows
// only the last change. There is no list of a limit's meters: every call would have to keep it.
func (s *shared) carry(ctx context.Context, l Limit) error {
	var node redis.Cmdable = s.rdb
	if cluster, ok := s.rdb.(*redis.ClusterClient); ok { // its SCAN goes to any node
		master, err := cluster.MasterForKey(ctx, s.prefix)
		if err != nil {
			return err
		}
		node = master
	}
	prefix := s.prefix + "m:" + string(l.Kind) + ":" + l.Name + "|"
	args := []any{l.Name}
	carryAll := func() error {
		if len(args) == 1 {
			return nil
		}
		_, err := s.extended(ctx, func() ([]any, error) { return s.run(ctx, carryScript, args...).Slice() })
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

// setKey takes two round trips, the first to check the override against the limit. If the limit
// changes its kind in between, the override is stored, and has no effect until the limit has the
// old kind again.
func (s *shared) setKey(ctx context.Context, limit, key string, o Override) error {
	l, err := s.definition(ctx, limit)
	if err == nil {
		err = o.validate(l)
	}
	if err != nil {
		return err
	}
	return s.change(ctx, limit, setKeyScript, limit, key, script.Actor(ctx), o.String(), string(l.Kind),
		o.Rate.N, o.Rate.Per.Microseconds(), o.Capacity, o.For.Microseconds())
}

func (s *shared) unsetKey(ctx context.Context, limit, key string) error {
	return s.change(ctx, limit, setKeyScript, limit, key, script.Actor(ctx), "")
}

// defineKeys makes the overrides of a definition known. It sends all of them, with their text. The
// script compares it with the text that it was given last: what is the same there stays, even if
// SetKey has changed it since.
func (s *shared) defineKeys(ctx context.Context, l Limit) error {
	var text strings.Builder
	args := []any{l.Name, string(l.Kind), ""}
	for _, key := range slices.Sorted(maps.Keys(l.Overrides)) {
		o := l.Overrides[key]
		fmt.Fprintf(&text, "%s\t%s %s\n", key, l.Kind, o)
		args = append(args, key, o.Rate.N, o.Rate.Per.Microseconds(), o.Capacity)
	}
	args[2] = text.String()
	return unavailable(s.run(ctx, fileKeysScript, args...).Err())
}

// keys reads the records of all keys of the limit in one reply, and takes three round trips.
func (s *shared) keys(ctx context.Context, limit string) ([]KeyState, error) {
	records, err := s.rdb.HGetAll(ctx, s.prefix+"overrides:"+limit).Result()
	if err != nil || len(records) == 0 {
		return nil, unavailable(err)
	}
	l, err := s.definition(ctx, limit)
	if errors.Is(err, ErrNoLimit) { // deleted since
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	now, err := s.rdb.Time(ctx).Result()
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

// key returns a limit, and what differs from it for one key.
func (s *shared) key(ctx context.Context, limit, key string) (l Limit, state KeyState, err error) {
	l, err = s.definition(ctx, limit)
	if err != nil {
		return l, state, err
	}
	record, err := s.rdb.HGet(ctx, s.prefix+"overrides:"+limit, key).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return l, state, unavailable(err)
	}
	now, err := s.rdb.Time(ctx).Result()
	return l, readKey(l, key, record, now), unavailable(err)
}

// readKey reads a record as lua/limits/include/record.lua writes it: 14 words, by number here. Of
// anything else it says that nothing differs.
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
	k.RateLimited = int(n[8])
	if l.Adapt == nil {
		return k
	}
	k.Share, k.Slowed, k.Latency = float64(n[7])/wholeShare, n[10] < wholeShare, microseconds(n[11])
	if k.Share < 1 {
		k.Pace = pace(l.With(k.Override).Rate, k.Share)
	}
	return k
}
