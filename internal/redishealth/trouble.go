package redishealth

import (
	"context"
	"errors"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Trouble is a reason why a Redis cannot be used, and a label value in metrics. The zero value means
// that nothing is wrong.
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
	Moving      Trouble = "slot_moves"
	// Evicts means that Redis can be used, but deletes keys when its memory is full.
	Evicts Trouble = "evicts"
)

// known maps each Trouble to its description and to a function that recognizes it in an error.
var known = map[Trouble]struct {
	says string
	is   func(err error) bool
}{
	Away:        {"it does not answer", never},
	Loading:     {"it is loading its data", redis.IsLoadingError},
	Full:        {"its memory is full", redis.IsOOMError},
	ReadOnly:    {"it is a replica, which takes no writes", redis.IsReadOnlyError},
	FewReplicas: {"it has fewer replicas than its min-replicas-to-write, and takes no writes", redis.IsNoReplicasError},
	Unsaved:     {"it cannot save to its disk, and takes no writes", func(err error) bool { return redis.HasErrorPrefix(err, "MISCONF") }},
	NoPassword:  {"it wants a password, and gets none", lacksPassword},
	Password:    {"it refuses the password, or there is no such user", func(err error) bool { return redis.IsAuthError(err) && !lacksPassword(err) }},
	Rights:      {"its user lacks rights", lacksRights},
	Clients:     {"it has as many connections as its maxclients", redis.IsMaxClientsError},
	Cluster:     {"its cluster, or the master of this replica, is down", func(err error) bool { return redis.IsClusterDownError(err) || redis.IsMasterDownError(err) }},
	Moving:      {"it moves a slot of its cluster to another node", isMoving},
	Evicts:      {"its maxmemory-policy deletes jobs and limits when its memory is full", never},
}

func never(error) bool { return false }

// lacksPassword reports whether an error means that the client has not signed in. Redis refuses a long
// command of such a client with a protocol error.
func lacksPassword(err error) bool {
	said, _ := errors.AsType[redis.Error](err)
	return redis.HasErrorPrefix(err, "NOAUTH") || said != nil && strings.Contains(said.Error(), "unauthenticated")
}

// lacksRights reports whether an error means that a user lacks a right. In a script, Redis 6.2 and 7.0
// return that error without NOPERM.
func lacksRights(err error) bool {
	said, _ := errors.AsType[redis.Error](err)
	return redis.IsPermissionError(err) || strings.Contains(said.Error(), "NOPERM ") || strings.Contains(said.Error(), "The user executing the script can't ")
}

// isMoving reports whether an error means that two nodes have parts of a slot. Redis then answers
// TRYAGAIN on one of them, and ASK on the other.
func isMoving(err error) bool {
	_, asks := redis.IsAskError(err)
	return asks || redis.IsTryAgainError(err)
}

// All returns all troubles, sorted.
func All() []Trouble { return slices.Sorted(maps.Keys(known)) }

// Description returns a sentence without a capital or a period, such as "it does not answer".
func (t Trouble) Description() string { return known[t].says }

// RefusesCommands reports whether Redis refuses some commands and accepts others.
func (t Trouble) RefusesCommands() bool { return t == Rights || t.RefusesWrites() }

// RefusesWrites reports whether Redis refuses writes and still answers reads.
func (t Trouble) RefusesWrites() bool {
	return t == Full || t == ReadOnly || t == FewReplicas || t == Unsaved
}

// IsTemporary reports whether the trouble may end without the operator's help.
func (t Trouble) IsTemporary() bool {
	return t == None || t == Away || t == Loading || t == Cluster || t == Moving
}

// Of returns the Trouble of a Redis call's error, or None.
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
		if known[t].is(err) {
			return t
		}
	}
	return None
}

// EvictionPolicy returns the maxmemory-policy by which a Redis deletes keys when its memory is full. It
// is empty if Redis keeps all keys, or does not say. For a cluster it is the policy of a node that
// evicts. It reads INFO, because managed servers refuse CONFIG.
func EvictionPolicy(ctx context.Context, rdb redis.UniversalClient) (policy string) {
	var mu sync.Mutex
	ask := func(ctx context.Context, rdb *redis.Client) error {
		info := rdb.Info(ctx, "memory").Val() // InfoMap panics at one without a heading
		mu.Lock()
		defer mu.Unlock()
		if found := evictionPolicy.FindStringSubmatch(info); found != nil && found[1] != "noeviction" {
			policy = found[1]
		}
		return nil
	}
	switch c := rdb.(type) {
	case *redis.ClusterClient:
		_ = c.ForEachMaster(ctx, ask)
	case *redis.Client:
		_ = ask(ctx, c)
	}
	return policy
}

var evictionPolicy = regexp.MustCompile(`(?m)^maxmemory_policy:(\S+)`)
