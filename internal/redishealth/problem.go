package redishealth

import (
	"cmp"
	"context"
	"errors"
	"regexp"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Problem is a reason why a Redis cannot be used. Its text is a label value in metrics. The zero
// value means that nothing is wrong.
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

// problems has the description of each Problem, and a pattern of the replies of Redis that show it.
// The first match counts. No reply shows a Problem without a pattern.
var problems = []struct {
	Problem
	description, pattern string
}{
	{Unreachable, "it does not answer", ""},
	{Loading, "it is loading its data", `^LOADING `},
	{OutOfMemory, "its memory is full", `^OOM |-OOM `},
	{ReadOnly, "it is a replica, which takes no writes", `^READONLY |-READONLY `},
	{FewReplicas, "it has fewer replicas than its min-replicas-to-write, and takes no writes", `^NOREPLICAS `},
	{CannotSave, "it cannot save to its disk, and takes no writes", `^(ERR )?MISCONF |-MISCONF `},
	// If a client that has not signed in sends a long command, Redis replies with a protocol error
	// that contains "unauthenticated", and not with NOAUTH.
	{NoPassword, "it requires a password, and none is set", `^NOAUTH |unauthenticated`},
	{WrongPassword, "it refuses the user or the password", `^WRONGPASS `},
	// In a script, Redis 6.2 and 7.0 return the error without NOPERM.
	{NoRights, "its user lacks rights", `NOPERM |The user executing the script can't `},
	{TooManyClients, "its limit of connections, maxclients, is reached", `^ERR max number of clients reached`},
	{ClusterDown, "its cluster, or the master of this replica, is down", `^(CLUSTER|MASTER)DOWN `},
	// While two nodes have parts of a slot, Redis answers TRYAGAIN on one of them, and ASK on the
	// other.
	{SlotMoves, "it moves a slot of its cluster to another node", `^(TRYAGAIN|ASK) `},
	{Evicts, "its maxmemory-policy deletes jobs and limits when its memory is full", ""},
}

// replyPatterns has the compiled patterns of problems, in their order.
var replyPatterns = func() (all []*regexp.Regexp) {
	for _, p := range problems {
		all = append(all, regexp.MustCompile(cmp.Or(p.pattern, `^$`)))
	}
	return all
}()

// All returns all problems.
func All() (all []Problem) {
	for _, p := range problems {
		all = append(all, p.Problem)
	}
	return all
}

// Description returns a sentence without a capital or a period, such as "it does not answer". For
// None it is empty.
func (t Problem) Description() string {
	for _, p := range problems {
		if p.Problem == t {
			return p.description
		}
	}
	return ""
}

// RefusesWrites reports whether Redis refuses writes and still answers reads.
func (t Problem) RefusesWrites() bool {
	return t == OutOfMemory || t == ReadOnly || t == FewReplicas || t == CannotSave
}

// IsTemporary reports whether the problem can end without the operator's help.
func (t Problem) IsTemporary() bool {
	return t == None || t == Unreachable || t == Loading || t == ClusterDown || t == SlotMoves
}

// ProblemOf returns the Problem that the error of a Redis call shows. For an error that is no reply
// of Redis, it returns Unreachable. For nil, and for a reply that shows no problem, it returns
// None.
func ProblemOf(err error) Problem {
	if err == nil || errors.Is(err, redis.Nil) || errors.Is(err, ErrNoAnswerYet) {
		return None
	}
	// asynq keeps only the text of an error, as script.Explain wrote it.
	if _, ok := errors.AsType[*RightsError](err); ok || strings.Contains(err.Error(), "(NOPERM)") {
		return NoRights
	}
	reply, answered := errors.AsType[redis.Error](err)
	if !answered {
		return Unreachable
	}
	for i, p := range problems {
		if replyPatterns[i].MatchString(reply.Error()) {
			return p.Problem
		}
	}
	return None
}

var evictionPolicy = regexp.MustCompile(`(?m)^maxmemory_policy:(\S+)`)

// EvictionPolicy returns the maxmemory-policy by which a Redis deletes keys when its memory is
// full. The result is empty if Redis keeps all keys. For a cluster it is the policy of one of the
// nodes that delete keys. An error means that the policy is unknown. EvictionPolicy reads INFO,
// because managed servers refuse CONFIG.
func EvictionPolicy(ctx context.Context, rdb redis.UniversalClient) (policy string, err error) {
	var mu sync.Mutex
	ask := func(ctx context.Context, rdb *redis.Client) error {
		info, err := rdb.Info(ctx, "memory").Result() // InfoMap panics if a reply has no section header
		mu.Lock()
		defer mu.Unlock()
		if found := evictionPolicy.FindStringSubmatch(info); found != nil && found[1] != "noeviction" {
			policy = found[1]
		}
		return err
	}
	switch c := rdb.(type) {
	case *redis.ClusterClient:
		err = c.ForEachMaster(ctx, ask)
	case *redis.Client:
		err = ask(ctx, c)
	}
	if policy != "" {
		return policy, nil
	}
	return "", err
}
