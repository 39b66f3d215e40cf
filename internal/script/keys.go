package script

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"

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

// WholeSlot returns the keys that a script must declare so that a cluster runs it only on a node
// that has all keys of the slot. While a slot moves, two nodes have parts of it, and a node checks
// only whether it has the declared keys. So WholeSlot adds a key that never exists: if several keys
// are declared and one is missing, Redis replies TRYAGAIN until the slot has moved.
func WholeSlot(rdb redis.Scripter, keys []string) []string {
	_, cluster := rdb.(*redis.ClusterClient)
	tag, rest, tagged := strings.Cut(keys[0], "}")
	if !cluster || !tagged || rest == ":" && len(keys) > 1 { // a scope's prefix is such a key
		return keys
	}
	return append(slices.Clip(keys), tag+"}:-")
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
	case kind == "concurrency" && !strings.HasSuffix(rest, "\n"): // a key with a newline is a flag: see leases.lua
		return "zset"
	}
	return "string"
}

// repairing is held while a call scans for keys of wrong types.
var repairing sync.Mutex

// removeWrongTypes removes the keys of a scope that have a wrong type, because every call that
// needs such a key would fail. Their data is lost, and headgate recovers as it does after a flush
// of Redis. removeWrongTypes scans the names of all keys of the Redis server.
func removeWrongTypes(ctx context.Context, rdb redis.UniversalClient, prefix string) error {
	repairing.Lock()
	defer repairing.Unlock()
	node, err := Node(ctx, rdb, prefix)
	if err != nil {
		return err
	}
	scan := node.Scan(ctx, 0, Literal(prefix)+"*", 1000).Iterator()
	for scan.Next(ctx) {
		name := scan.Val()
		want := typeOf(strings.TrimPrefix(name, prefix))
		is, err := rdb.Type(ctx, name).Result()
		if err != nil {
			return err
		}
		if is == "none" || want == "" || is == want {
			continue
		}
		slog.Warn("removed a key of the limiter that had a wrong type", "key", name, "type", is, "want", want)
		if err := rdb.Unlink(ctx, name).Err(); err != nil {
			return err
		}
	}
	return scan.Err()
}

// Node returns the node of rdb that has the keys with a prefix. A SCAN must be sent to that node,
// because a cluster client sends it to any node.
func Node(ctx context.Context, rdb redis.UniversalClient, prefix string) (redis.Cmdable, error) {
	if cluster, ok := rdb.(*redis.ClusterClient); ok {
		return cluster.MasterForKey(ctx, prefix)
	}
	return rdb, nil
}
