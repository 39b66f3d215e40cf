package worker

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/config"
)

// evictionWarning is a line about a Redis that deletes jobs and limits when its
// memory is full, with the command that mends it. It is empty where Redis keeps
// everything, and where it does not say.
func evictionWarning(ctx context.Context, rdb redis.UniversalClient, r config.Redis) string {
	policy := evictionPolicy(ctx, rdb)
	if policy == "" || policy == "noeviction" {
		return ""
	}
	cli, where := "redis-cli", ""
	if user, password := r.SignsIn(); password {
		cli += " --askpass" // which asks: in a log stands no password
		if user != "" {
			cli += " --user " + user
		}
	}
	switch scheme, _, _ := strings.Cut(r.String(), ":"); scheme {
	case "redis", "rediss":
		cli += " -u " + r.String()
	default:
		where = " (on each server)"
	}
	return fmt.Sprintf("Redis deletes jobs and limits when its memory is full, for its maxmemory-policy is %s;"+
		" to mend that: %s CONFIG SET maxmemory-policy noeviction%s", policy, cli, where)
}

var policyLine = regexp.MustCompile(`(?m)^maxmemory_policy:(\S+)`)

// evictionPolicy is the maxmemory-policy, of a cluster the first that evicts.
// INFO tells it also where managed servers refuse CONFIG.
func evictionPolicy(ctx context.Context, rdb redis.UniversalClient) (policy string) {
	var mu sync.Mutex
	ask := func(ctx context.Context, rdb redis.Cmdable) {
		found := policyLine.FindStringSubmatch(rdb.Info(ctx, "memory").Val())
		mu.Lock()
		defer mu.Unlock()
		if found != nil && (policy == "" || policy == "noeviction") {
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
