package trouble

import (
	"context"
	"regexp"
	"sync"

	"github.com/redis/go-redis/v9"
)

var policyLine = regexp.MustCompile(`(?m)^maxmemory_policy:(\S+)`)

// EvictionPolicy is the maxmemory-policy by which a Redis deletes keys when its memory is
// full; empty where it keeps all, or does not say. Of a cluster it is the first that evicts.
// INFO tells it also where managed servers refuse CONFIG.
func EvictionPolicy(ctx context.Context, rdb redis.UniversalClient) (policy string) {
	var mu sync.Mutex
	ask := func(ctx context.Context, rdb redis.Cmdable) {
		found := policyLine.FindStringSubmatch(rdb.Info(ctx, "memory").Val())
		mu.Lock()
		defer mu.Unlock()
		if found != nil && found[1] != "noeviction" {
			policy = found[1]
		}
	}
	if cluster, ok := rdb.(*redis.ClusterClient); ok {
		_ = cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
			ask(ctx, node)
			return nil
		})
	} else {
		ask(ctx, rdb)
	}
	return policy
}
