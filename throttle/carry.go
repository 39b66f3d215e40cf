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
func (r *Redis) carry(ctx context.Context, l Limit) error {
	node, err := r.node(ctx)
	if err != nil {
		return err
	}
	prefix := r.prefix + "m:" + string(l.Kind) + ":" + l.Name + "|"
	args := []any{l.Name}
	flush := func() error {
		defer func() { args = args[:1] }()
		if len(args) == 1 {
			return nil
		}
		return r.run(ctx, lua.Carry, args...).Err()
	}
	for keys := node.Scan(ctx, 0, globEscape(prefix)+"*", 1000).Iterator(); ; {
		if !keys.Next(ctx) {
			if keys.Err() != nil {
				return keys.Err()
			}
			return flush()
		}
		args = append(args, strings.TrimPrefix(keys.Val(), prefix))
		if len(args) > carryBatch {
			if err := flush(); err != nil {
				return err
			}
		}
	}
}

// node is the Redis that has the keys of the scope.
func (r *Redis) node(ctx context.Context) (redis.Cmdable, error) {
	if cluster, ok := r.rdb.(*redis.ClusterClient); ok {
		return cluster.MasterForKey(ctx, r.prefix)
	}
	return r.rdb, nil
}
