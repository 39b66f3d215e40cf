package throttle

import (
	"context"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/lua"
)

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
	node, err := r.node(ctx)
	if err != nil {
		return err
	}
	prefix := r.prefix + "m:" + string(l.Kind) + ":" + l.Name + "|"
	var keys []string
	scan := node.Scan(ctx, 0, lua.Literal(prefix)+"*", 1000).Iterator()
	for scan.Next(ctx) {
		keys = append(keys, strings.TrimPrefix(scan.Val(), prefix))
		if len(keys) == carryBatch {
			if err := r.carryKeys(ctx, l.Name, keys); err != nil {
				return err
			}
			keys = keys[:0]
		}
	}
	if scan.Err() != nil {
		return scan.Err()
	}
	return r.carryKeys(ctx, l.Name, keys)
}

// carryKeys does that for some keys. Where the script says that the calendar of
// the limit ends before, it extends that and runs the script again: to do both in
// one script would need Go's time zones in Lua.
func (r *Redis) carryKeys(ctx context.Context, limit string, keys []string) error {
	if len(keys) == 0 {
		return nil
	}
	args := []any{limit}
	for _, key := range keys {
		args = append(args, key)
	}
	for range 3 {
		now, err := r.run(ctx, lua.Carry, args...).Int64()
		if err != nil || now == 0 {
			return err
		}
		if err := r.ExtendCalendars(ctx, []string{limit}, now); err != nil {
			return err
		}
	}
	return errCalendar
}

// node is the Redis that has the keys of the scope: of a cluster, where SCAN goes to
// any node, the master of the scope's slot.
func (r *Redis) node(ctx context.Context) (redis.Cmdable, error) {
	if cluster, ok := r.rdb.(*redis.ClusterClient); ok {
		return cluster.MasterForKey(ctx, r.prefix)
	}
	return r.rdb, nil
}
