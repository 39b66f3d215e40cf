package redishealth

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Trouble is what is wrong with a Redis, as labels have it. The zero value is nothing.
type Trouble string

// The troubles.
const (
	None        Trouble = ""
	Away        Trouble = "away"
	Loading     Trouble = "loading"
	Full        Trouble = "out_of_memory"
	ReadOnly    Trouble = "read_only"
	FewReplicas Trouble = "too_few_replicas"
	Unsaved     Trouble = "cannot_save"
	NoPassword  Trouble = "no_password"
	Password    Trouble = "wrong_password"
	Rights      Trouble = "no_rights"
	Clients     Trouble = "too_many_clients"
	Cluster     Trouble = "cluster_down"
	// Evicts is of a Redis that can be used: until its memory is full.
	Evicts Trouble = "evicts"
)

// known are the troubles, in words, and how an answer of Redis tells them.
var known = map[Trouble]struct {
	says string
	is   func(err error) bool
}{
	Away:        {"it does not answer", nil},
	Loading:     {"it is loading its data", redis.IsLoadingError},
	Full:        {"its memory is full", redis.IsOOMError},
	ReadOnly:    {"it is a replica, which takes no writes", redis.IsReadOnlyError},
	FewReplicas: {"it has fewer replicas than its min-replicas-to-write, and takes no writes", redis.IsNoReplicasError},
	Unsaved:     {"it cannot save to its disk, and takes no writes", func(err error) bool { return redis.HasErrorPrefix(err, "MISCONF") }},
	NoPassword:  {"it wants a password, and gets none", func(err error) bool { return redis.HasErrorPrefix(err, "NOAUTH") }},
	Password:    {"it refuses the password, or there is no such user", redis.IsAuthError},
	Rights:      {"its user lacks rights", lacksRights},
	Clients:     {"it has as many connections as its maxclients", redis.IsMaxClientsError},
	Cluster:     {"its cluster, or the master of this replica, is down", func(err error) bool { return redis.IsClusterDownError(err) || redis.IsMasterDownError(err) }},
	Evicts:      {"its maxmemory-policy deletes jobs and limits when its memory is full", nil},
}

// lacksRights reports whether an answer says that a user lacks a right, also within a script.
// There Redis 6.2 and 7.0 say it without NOPERM.
func lacksRights(err error) bool {
	said, _ := errors.AsType[redis.Error](err)
	return redis.IsPermissionError(err) || strings.Contains(said.Error(), "NOPERM ") || strings.Contains(said.Error(), "The user executing the script can't ")
}

// All lists them.
func All() []Trouble { return slices.Sorted(maps.Keys(known)) }

// Says is the trouble in words, which go on after a colon.
func (t Trouble) Says() string { return known[t].says }

// Refuses reports whether such a Redis refuses some commands and answers others.
func (t Trouble) Refuses() bool { return t == Rights || t.RefusesWrites() }

// RefusesWrites reports whether such a Redis answers what only reads.
func (t Trouble) RefusesWrites() bool {
	return t == Full || t == ReadOnly || t == FewReplicas || t == Unsaved
}

// Passes reports whether it may pass by itself: nobody need mend anything.
func (t Trouble) Passes() bool { return t == None || t == Away || t == Loading || t == Cluster }

// Of is what a call of Redis that failed so says. An answer of whatever else is none.
func Of(err error) Trouble {
	if err == nil || errors.Is(err, redis.Nil) {
		return None
	}
	if _, ok := errors.AsType[*RightsError](err); ok {
		return Rights
	}
	if _, answered := errors.AsType[redis.Error](err); !answered {
		return Away
	}
	for _, t := range All() {
		if is := known[t].is; is != nil && is(err) {
			return t
		}
	}
	return None
}

// EvictionPolicy is the maxmemory-policy by which a Redis deletes keys when its memory is
// full; empty where it keeps all, or does not say. Of a cluster it is the first that evicts.
// INFO tells it also where managed servers refuse CONFIG.
func EvictionPolicy(ctx context.Context, rdb redis.UniversalClient) (policy string) {
	var mu sync.Mutex
	ask := func(ctx context.Context, rdb redis.Cmdable) {
		info := rdb.Info(ctx, "memory").Val() // InfoMap panics at one without a heading
		mu.Lock()
		defer mu.Unlock()
		for line := range strings.Lines(info) {
			found, ok := strings.CutPrefix(strings.TrimSpace(line), "maxmemory_policy:")
			if ok && found != "" && found != "noeviction" {
				policy = found
			}
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
