package redistest

import (
	"context"
	"slices"

	"github.com/redis/go-redis/v9"
)

// Contents are the values of all keys of headgate's.
func Contents(t TB, rdb redis.UniversalClient) map[string]any {
	t.Helper()
	ctx := context.Background()
	keys, err := rdb.Keys(ctx, "hg:*").Result()
	if err != nil {
		t.Fatalf("%v", err)
	}
	all := map[string]any{}
	for _, key := range keys {
		switch kind := rdb.Type(ctx, key).Val(); kind {
		case "string":
			all[key] = rdb.Get(ctx, key).Val()
		case "list":
			all[key] = rdb.LRange(ctx, key, 0, -1).Val()
		case "hash":
			all[key] = rdb.HGetAll(ctx, key).Val()
		case "set":
			members := rdb.SMembers(ctx, key).Val()
			slices.Sort(members)
			all[key] = members
		case "zset":
			all[key] = rdb.ZRangeWithScores(ctx, key, 0, -1).Val()
		case "stream":
			all[key] = rdb.XRange(ctx, key, "-", "+").Val()
		default:
			t.Fatalf("%s is a %s", key, kind)
		}
	}
	return all
}
