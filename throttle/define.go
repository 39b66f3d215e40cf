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

// The sources of a definition in Redis.
const (
	fromFile  = "file"  // Define
	fromAgain = "again" // an earlier Define, written again because Redis lost the limit
	fromSet   = "set"   // Set
	fromUnset = "unset" // Unset
)

// define stores all limits in this process before it writes the first to Redis. If Redis is down,
// defineAgain writes the limits when a later call needs one of them.
func (s *shared) define(ctx context.Context, limits []Limit) error {
	s.mu.Lock()
	for _, l := range limits {
		l.Apps, l.Overrides = slices.Clone(l.Apps), maps.Clone(l.Overrides)
		s.defined[l.Name] = l
	}
	s.mu.Unlock()
	for _, l := range limits {
		changed, err := s.write(ctx, fromFile, l)
		if err != nil {
			return err
		}
		if changed == 2 {
			s.log.Warn("the definition in the config replaced a definition that was set at run time", "limit", l.Name, "now", l.String())
		}
	}
	return nil
}

// defineAgain reports whether an earlier Define call defined the lost limit. If so, it writes all
// limits of earlier Define calls to Redis. Changes by Set from before the loss stay lost.
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
	if count > 0 { // of many concurrent calls, only the first logs this
		s.log.Warn("limits were missing in Redis, and were defined again from the config", "limit", lost, "defined", count)
	}
	return true, nil
}

func (s *shared) set(ctx context.Context, l Limit) error {
	_, err := s.write(ctx, fromSet, l)
	return err
}

// write stores a definition, and converts the limit's meters if the rate changes. The result
// changed is that of lua/limits/define.lua: 0 if the definition is unchanged, 1 if it has changed,
// 2 if it replaces a definition that Set had written.
func (s *shared) write(ctx context.Context, source string, l Limit) (changed int, err error) {
	l.Paused = false
	edges := l.meter(0).EdgesText(time.Now().UnixMicro())
	args := append([]any{l.Name, source, l.String(), script.Actor(ctx), new(script.Sent)}, l.fields(edges)...)
	reply, err := s.run(ctx, defineScript, args...).Int64Slice()
	if err != nil {
		return 0, unavailable(err)
	}
	if reply[1] == 1 && l.Kind != Concurrency {
		err = s.convert(ctx, l)
	}
	if source != fromSet && source != fromUnset && (len(l.Overrides) > 0 || reply[2] == 1) {
		err = errors.Join(err, s.defineKeys(ctx, l))
	}
	return int(reply[0]), unavailable(err)
}

// fields returns the names and values of a definition's fields in Redis. Settings that the limit
// leaves out get their defaults, except max_block. The parameter edges has the window boundaries of
// the limit's calendar; it is empty for a limit without a calendar. Meters count with n and
// period_us. Their period_us includes the margin, except for a fixed window. The rate without the
// margin is rate_n and per_us. If the result has a field twice, Redis stores the later value.
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
	inMeter := l.meter(0)
	add(l.Kind == Concurrency, "lease_us", l.lease().Microseconds())
	add(l.Kind != Concurrency, "n", l.Rate.N, "period_us", inMeter.PeriodUS())
	add(l.Kind == FixedWindow, "offset_us", inMeter.OffsetUS())
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

// delete also removes the limit from s.defined, so that defineAgain does not write the limit again.
func (s *shared) delete(ctx context.Context, name string) error {
	s.mu.Lock()
	delete(s.defined, name)
	s.mu.Unlock()
	c, done := s.callers.Next()
	defer done()
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
		if errors.Is(err, ErrNoLimit) { // deleted in between
			continue
		}
		if err != nil {
			return nil, err
		}
		limits = append(limits, l)
	}
	return limits, nil
}

// definition reads one limit from Redis. For a missing or incomplete definition it returns an error
// that wraps ErrNoLimit.
func (s *shared) definition(ctx context.Context, name string) (Limit, error) {
	fields, err := s.rdb.HGetAll(ctx, s.prefix+"limit:"+name).Result()
	if err != nil {
		return Limit{}, unavailable(err)
	}
	l, complete := s.Parse(name, fields)
	if !complete {
		return Limit{}, noLimit(name)
	}
	return l, nil
}

// Parse returns the limit of a definition in Redis, and reports whether the definition is
// complete and consistent with its text.
func (s *shared) Parse(name string, fields map[string]string) (l Limit, complete bool) {
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

// ExtendCalendars stores the window boundaries of limits around nowUS, Redis's time in
// microseconds. A script needs more boundaries when it reaches the last window in Redis.
// ExtendCalendars ignores limits that do not exist.
func (s *shared) ExtendCalendars(ctx context.Context, names []string, nowUS int64) error {
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

// Extended calls run, which runs a script and returns its reply. The reply begins with the names of
// the limits that need more window boundaries, separated by spaces, and Redis's time. If there are
// names, Extended stores the boundaries and calls run again. The result rest is the reply without
// the names.
func (s *shared) Extended(ctx context.Context, run func() ([]any, error)) (rest []any, err error) {
	for range 3 {
		reply, err := run()
		if err != nil {
			return nil, unavailable(err)
		}
		names := strings.Fields(reply[0].(string))
		if len(names) == 0 {
			return reply[1:], nil
		}
		if err := s.ExtendCalendars(ctx, slices.Compact(names), reply[1].(int64)); err != nil {
			return nil, err
		}
	}
	return nil, errCalendar
}

// convertBatch is the largest number of meters in one call of convertScript. Such a call takes less
// than a millisecond of Redis's time.
const convertBatch = 50

// convert converts all meters of a limit after a change of its rate. Allow converts only the meters
// that it uses, and an idle meter would expire by the old rate. convert scans the names of all keys
// of the Redis server. A meter expires a minute after all its permits are free again, so a scan of
// less than a minute loses no state.
func (s *shared) convert(ctx context.Context, l Limit) error {
	node, err := script.Node(ctx, s.rdb, s.prefix)
	if err != nil {
		return err
	}
	prefix := s.prefix + "m:" + string(l.Kind) + ":" + l.Name + "|"
	args := []any{l.Name}
	convertAll := func() error {
		if len(args) == 1 {
			return nil
		}
		_, err := s.Extended(ctx, func() ([]any, error) { return s.run(ctx, convertScript, args...).Slice() })
		args = args[:1]
		return err
	}
	scan := node.Scan(ctx, 0, script.Literal(prefix)+"*", 1000).Iterator()
	for scan.Next(ctx) {
		if args = append(args, strings.TrimPrefix(scan.Val(), prefix)); len(args) > convertBatch {
			if err := convertAll(); err != nil {
				return err
			}
		}
	}
	return cmp.Or(scan.Err(), convertAll())
}

// setKey takes two round trips: it reads the limit to check the override, and then sets it.
func (s *shared) setKey(ctx context.Context, limit, key string, o Override) error {
	l, err := s.definition(ctx, limit)
	if err == nil {
		err = o.validate(l)
	}
	if err != nil {
		return err
	}
	return s.change(ctx, limit, setKeyScript, limit, key, script.Actor(ctx), o.String(), string(l.Kind),
		o.Rate.N, o.Rate.Per.Microseconds(), o.Capacity)
}

func (s *shared) unsetKey(ctx context.Context, limit, key string) error {
	return s.change(ctx, limit, setKeyScript, limit, key, script.Actor(ctx), "")
}

// defineKeys writes the overrides of a definition, and their text. If the previous definition had
// the same override for a key, a change of this override at run time stays.
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

// keys returns the keys that differ from their limit. It takes two round trips.
func (s *shared) keys(ctx context.Context, limit string) ([]KeyState, error) {
	records, err := s.rdb.HGetAll(ctx, s.prefix+"overrides:"+limit).Result()
	if err != nil || len(records) == 0 {
		return nil, unavailable(err)
	}
	l, err := s.definition(ctx, limit)
	if errors.Is(err, ErrNoLimit) { // deleted in between
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var keys []KeyState
	for _, key := range slices.Sorted(maps.Keys(records)) {
		if k := readKey(l, key, records[key]); k.differs() {
			keys = append(keys, k)
		}
	}
	return keys, nil
}

// Key returns a limit, and how one key differs from the limit. It takes two round trips.
func (s *shared) Key(ctx context.Context, limit, key string) (l Limit, state KeyState, err error) {
	l, err = s.definition(ctx, limit)
	if err != nil {
		return l, state, err
	}
	record, err := s.rdb.HGet(ctx, s.prefix+"overrides:"+limit, key).Result()
	if errors.Is(err, redis.Nil) {
		err = nil
	}
	return l, readKey(l, key, record), unavailable(err)
}

// readKey reads the 13 words of a record: see lua/limits/include/record.lua. For a corrupt record
// it returns a KeyState that does not differ from the limit.
func readKey(l Limit, key, record string) KeyState {
	words := strings.Fields(record)
	k := KeyState{Key: key, Share: 1}
	if len(words) < 13 {
		return k
	}
	var n [13]int64
	for i := range n {
		n[i] = number(words[i])
	}
	if words[0] != "-" && Kind(words[1]) == l.Kind {
		k.File = words[0] == "file"
		k.Override = Override{Rate{int(n[2]), microseconds(n[3])}, int(n[4])}
	}
	k.rateLimited = int(n[7])
	if l.Adapt == nil {
		return k
	}
	k.Share, k.slowed, k.latency = float64(n[6])/wholeShare, n[9] < wholeShare, microseconds(n[10])
	if k.Share < 1 {
		k.pace = pace(l.With(k.Override).Rate, k.Share)
	}
	return k
}
