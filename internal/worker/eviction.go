package worker

import (
	"context"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/trouble"
)

// evictionWarning is a line about a Redis that deletes jobs and limits when its
// memory is full, with the command that mends it. It is empty where Redis keeps
// everything, and where it does not say.
func evictionWarning(ctx context.Context, rdb redis.UniversalClient, r config.Redis) string {
	policy := trouble.EvictionPolicy(ctx, rdb)
	if policy == "" {
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

// lookAtEviction says when Redis begins to delete jobs and limits, and when that ends: an
// operator may change that at any time, or a failover to another server.
func (w *Worker) lookAtEviction(ctx context.Context) {
	text := evictionWarning(ctx, w.store.UniversalClient, w.config.Load().Redis)
	switch before := w.health.evicts.Swap(&text); {
	case text != "" && (before == nil || text != *before):
		w.log.Warn(text)
	case text == "" && before != nil && *before != "":
		w.log.Info("Redis keeps jobs and limits again when its memory is full")
	}
}
