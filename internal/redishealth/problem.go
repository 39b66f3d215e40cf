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

// Problem is a reason why a Redis cannot be used, and a label value in metrics. The zero value means
// that nothing is wrong.
type Problem string

// The problems.
const (
	None           Problem = ""
	Unreachable    Problem = "away"
	Loading        Problem = "loading"
	OutOfMemory    Problem = "out_of_memory"
	ReadOnly       Problem = "read_only"
	FewReplicas    Problem = "too_few_replicas"
	CannotSave     Problem = "cannot_save"
	NoPassword     Problem = "no_password"
	WrongPassword  Problem = "wrong_password"
	NoRights       Problem = "no_rights"
	TooManyClients Problem = "too_many_clients"
	ClusterDown    Problem = "cluster_down"
	SlotMoves      Problem = "slot_moves"
	// Evicts means that Redis can be used, but deletes keys when its memory is full.
	Evicts Problem = "evicts"
)

// known maps each Problem to its description and to a function that recognizes it in an error.
var known = map[Problem]struct {
	description string
	matches     func(err error) bool
}{
	Unreachable:    {"it does not answer", never},
	Loading:        {"it is loading its data", redis.IsLoadingError},
	OutOfMemory:    {"its memory is full", redis.IsOOMError},
	ReadOnly:       {"it is a replica, which takes no writes", redis.IsReadOnlyError},
	FewReplicas:    {"it has fewer replicas than its min-replicas-to-write, and takes no writes", redis.IsNoReplicasError},
	CannotSave:     {"it cannot save to its disk, and takes no writes", func(err error) bool { return redis.HasErrorPrefix(err, "MISCONF") }},
	NoPassword:     {"it requires a password, and none is set", lacksPassword},
	WrongPassword:  {"it refuses the user or the password", func(err error) bool { return redis.IsAuthError(err) && !lacksPassword(err) }},
	NoRights:       {"its user lacks rights", lacksRights},
	TooManyClients: {"its limit of connections, maxclients, is reached", redis.IsMaxClientsError},
	ClusterDown:    {"its cluster, or the master of this replica, is down", func(err error) bool { return redis.IsClusterDownError(err) || redis.IsMasterDownError(err) }},
	SlotMoves:      {"it moves a slot of its cluster to another node", isMoving},
	Evicts:         {"its maxmemory-policy deletes jobs and limits when its memory is full", never},
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

// All returns all problems, sorted.
func All() []Problem { return slices.Sorted(maps.Keys(known)) }

// Description returns a sentence without a capital or a period, such as "it does not answer".
func (t Problem) Description() string { return known[t].description }

// RefusesCommands reports whether Redis refuses some commands and accepts others.
func (t Problem) RefusesCommands() bool { return t == NoRights || t.RefusesWrites() }

// RefusesWrites reports whether Redis refuses writes and still answers reads.
func (t Problem) RefusesWrites() bool {
	return t == OutOfMemory || t == ReadOnly || t == FewReplicas || t == CannotSave
}

// IsTemporary reports whether the problem may end without the operator's help.
func (t Problem) IsTemporary() bool {
	return t == None || t == Unreachable || t == Loading || t == ClusterDown || t == SlotMoves
}

// ProblemOf returns the Problem of a Redis call's error, or None.
func ProblemOf(err error) Problem {
	if err == nil || errors.Is(err, redis.Nil) {
		return None
	}
	if _, ok := errors.AsType[*RightsError](err); ok {
		return NoRights
	}
	if _, answered := errors.AsType[redis.Error](err); !answered {
		return Unreachable
	}
	for _, t := range All() {
		if known[t].matches(err) {
			return t
		}
	}
	return None
}

// EvictionPolicy returns the maxmemory-policy by which a Redis deletes keys when its memory is
// full. The policy is empty if Redis keeps all keys, or if the policy is unknown. For a cluster it
// is the policy of a node that evicts. EvictionPolicy reads INFO, because managed servers refuse
// CONFIG.
func EvictionPolicy(ctx context.Context, rdb redis.UniversalClient) (policy string) {
	var mu sync.Mutex
	ask := func(ctx context.Context, rdb *redis.Client) error {
		info := rdb.Info(ctx, "memory").Val() // InfoMap panics if a reply has no section header
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
