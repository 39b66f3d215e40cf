package script

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// keys maps the name of each key of a scope, without the prefix, to its Redis type. The table in
// docs/design.md lists the same keys. A name that ends with a colon is the prefix of several keys.
// The type of a meter depends on the kind of its limit.
var keys = map[string]string{
	"limit:": "hash", "summaries": "hash", "limits": "set", "deleted": "hash", "blocked:": "zset", "overrides:": "hash",
	"ending:": "zset", "m:": "by kind", "cell:": "string", "cron:": "hash", "crawls": "zset", "crawl:": "hash",
	"crawl_seen:": "hash", "crawl_hosts:": "hash", "robots:": "hash",
	"robots_busy:": "string", "crawl_paced:": "string", "jobs": "hash", "lane:": "zset", "granted:": "zset", "lanes": "zset", "tickets": "hash",
	"full": "set", "contended": "hash", "meters": "hash", "demand": "hash", "deadlines": "zset", "leader": "string",
	"weights": "hash", "asynq": "string", "stats": "stream",
	"workers": "zset", "worker:": "string", "backlog": "string", "epoch": "string",
	"seq": "string", "changes": "string", "changelog": "stream", "admitted:": "string",
}

// typeOf returns the Redis type that a key must have, or "" if no script writes a key of that name.
func typeOf(name string) string {
	first, rest, several := strings.Cut(name, ":")
	if several {
		first += ":"
	}
	if first != "m:" {
		return keys[first]
	}
	kind, _, _ := strings.Cut(rest, ":")
	switch {
	case kind == "sliding_log":
		return "list"
	case kind == "concurrency" && !strings.HasSuffix(rest, "\n"): // else the mark of costs above 1: see leases.lua
		return "zset"
	}
	return "string"
}

// removeWrongTypes removes the keys of a scope that have a wrong type, because every call that
// needs such a key would fail. The data in these keys is lost, and is restored as after a flush of
// Redis. It scans the names of all keys of the Redis server, and returns the number of removed
// keys.
func removeWrongTypes(ctx context.Context, rdb redis.UniversalClient, prefix string) (removed int, err error) {
	var node redis.Cmdable = rdb
	if cluster, ok := rdb.(*redis.ClusterClient); ok { // its SCAN goes to any node
		if node, err = cluster.MasterForKey(ctx, prefix); err != nil {
			return 0, err
		}
	}
	for cursor := uint64(0); ; {
		var names []string
		if names, cursor, err = node.Scan(ctx, cursor, Literal(prefix)+"*", 1000).Result(); err != nil {
			return removed, err
		}
		types, err := rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			for _, name := range names {
				p.Type(ctx, name)
			}
			return nil
		})
		if err != nil {
			return removed, err
		}
		for i, name := range names {
			is, want := types[i].(*redis.StatusCmd).Val(), typeOf(strings.TrimPrefix(name, prefix))
			if is == "none" || want == "" || is == want {
				continue
			}
			slog.Warn("a key of the limiter was of a type that it never writes, and was removed", "key", name, "type", is, "want", want)
			if err := rdb.Unlink(ctx, name).Err(); err != nil {
				return removed, err
			}
			removed++
		}
		if cursor == 0 {
			return removed, nil
		}
	}
}

// A scope is the keys of one prefix in one Redis.
type scope struct {
	rdb    redis.UniversalClient
	prefix string
}

// repairs lets only one of several concurrent calls that fail for a wrong type scan for such keys.
var repairs sync.Map // scope → *lastRepair

type lastRepair struct {
	sync.Mutex
	began   time.Time
	removed int
}

// repairInterval is the shortest time between two scans if the first one found nothing.
const repairInterval = 10 * time.Second

// repair removes keys of wrong types, and reports whether the failed call should be repeated.
func repair(ctx context.Context, rdb redis.UniversalClient, prefix string) bool {
	met := time.Now()
	value, _ := repairs.LoadOrStore(scope{rdb, prefix}, &lastRepair{})
	last := value.(*lastRepair)
	last.Lock()
	defer last.Unlock()
	if last.began.Before(met) && (last.removed > 0 || met.Sub(last.began) >= repairInterval) {
		last.began = time.Now()
		last.removed, _ = removeWrongTypes(ctx, rdb, prefix)
	}
	return last.removed > 0
}
