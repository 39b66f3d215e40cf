package script

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/safelog"
)

// Prefix returns the prefix of all keys of a scope. It is the only KEYS argument of most scripts.
func Prefix(scope string) string { return "hg:{" + scope + "}:" }

// Scope returns the name of the scope with this key prefix.
func Scope(prefix string) string {
	return strings.TrimSuffix(strings.TrimPrefix(prefix, "hg:{"), "}:")
}

// Literal returns a SCAN pattern that matches only the text itself: it escapes \ * ? and [.
func Literal(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(text)
}

// Node returns the node that has the keys with a prefix. A cluster client sends a SCAN to any node,
// so a SCAN for these keys must be sent to the returned node itself.
func Node(ctx context.Context, rdb redis.UniversalClient, prefix string) (redis.Cmdable, error) {
	if cluster, ok := rdb.(*redis.ClusterClient); ok {
		return cluster.MasterForKey(ctx, prefix)
	}
	return rdb, nil
}

// WholeSlot adds a key that never exists to the declared keys of a script, if rdb is a cluster.
// While a slot moves, two nodes have parts of it. A node that lacks one of several declared keys
// replies TRYAGAIN, so the script runs only after the move.
func WholeSlot(rdb redis.Scripter, keys []string) []string {
	_, cluster := rdb.(*redis.ClusterClient)
	tag, rest, tagged := strings.Cut(keys[0], "}")
	if !cluster || !tagged || rest == ":" && len(keys) > 1 { // a scope's prefix never exists either
		return keys
	}
	return append(slices.Clip(keys), tag+"}:-")
}

type actorKey struct{}

// WithActor returns a context with which the changelog records the actor of each change.
func WithActor(ctx context.Context, actor string) context.Context {
	return context.WithValue(ctx, actorKey{}, actor)
}

// Actor returns the actor that WithActor put into the context, or "" if there is none.
func Actor(ctx context.Context) string {
	actor, _ := ctx.Value(actorKey{}).(string)
	return actor
}

// keyTypes has the names of a scope's keys, without the prefix, by Redis type. A name that ends
// with a colon is the prefix of several keys.
var keyTypes = map[string]string{
	"hash":   "limit: summaries deleted missing: overrides: cron: crawl: crawl_seen: crawl_hosts: robots: drained jobs tickets contended meters demand weights",
	"list":   "m:sliding_log:",
	"set":    "limits full",
	"string": "m: cell: robots_busy: crawl_paced: leader asynq worker: backlog epoch seq changes admitted: refused:",
	"stream": "stats changelog",
	"zset":   "blocked: ending: crawls lane: granted: lanes deadlines workers m:concurrency:",
}

// typeOf returns the Redis type that a key, given without the scope's prefix, must have. It returns
// "" if no script writes a key of that name.
func typeOf(key string) (want string) {
	if strings.HasPrefix(key, "m:") && strings.HasSuffix(key, "\n") { // a flag of a concurrency meter: see leases.lua
		return "string"
	}
	longest := 0
	for kind, names := range keyTypes {
		for name := range strings.FieldsSeq(names) {
			if len(name) > longest && (key == name || strings.HasSuffix(name, ":") && strings.HasPrefix(key, name)) {
				want, longest = kind, len(name)
			}
		}
	}
	return want
}

// repairing is locked while a call of removeWrongTypes runs, so that calls follow one another.
var repairing sync.Mutex

// RemoveWrongTypes removes all keys of a scope that have a wrong type, if err says that one has.
// Otherwise every later call that needs such a key would fail. It reports whether the caller can
// try again. headgate then recovers as after a flush of Redis.
func RemoveWrongTypes(ctx context.Context, rdb redis.UniversalClient, prefix string, err error) bool {
	return isWrongType(err) && removeWrongTypes(ctx, rdb, prefix) == nil
}

// removeWrongTypes scans the names of all keys of the Redis server.
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
		is, err := rdb.Type(ctx, name).Result()
		if want := typeOf(strings.TrimPrefix(name, prefix)); err == nil && is != "none" && want != "" && is != want {
			safelog.New(slog.Default()).Warn("removed a key of the limiter that had a wrong type", "key", name, "type", is, "want", want)
			err = rdb.Unlink(ctx, name).Err()
		}
		if err != nil {
			return err
		}
	}
	return scan.Err()
}
