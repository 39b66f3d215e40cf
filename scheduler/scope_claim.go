package scheduler

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redishealth"
	"github.com/headgate/headgate/internal/waitdb"
)

const (
	// claimLife is how long a claim outlives the processes that made it.
	claimTTL = time.Minute
	// claimEach is how often they renew it: two renewals may fail.
	claimInterval = 20 * time.Second
)

// claim claims the limiter's scope for the asynq Redis of this server, because the dispatcher moves
// all jobs that wait in the scope, and can do so in one asynq Redis only. It fails if another asynq
// Redis has the scope. If one of the two Redis servers cannot be reached, the claim is left for
// later. It takes three round trips.
//
// A claim names the data and their address, and either is enough: after a failover the same data are
// at another address, and after a loss other data are at the same one. If no address is known, for
// example behind a Sentinel, a running process knows which data it had before.
//
// claim also ensures that only workers of one version run in a scope. What an older version has left
// is converted once none of its workers gives turns.
func (s *scope) claim(ctx context.Context) error {
	rdb, queues := s.db.Redis, s.queueHealth.Watch()
	if err := rdb.SetNX(ctx, redishealth.DataKey, uuid.NewString(), 0).Err(); queues.Note(ctx, err) != nil {
		return replyError(err)
	}
	data, err := rdb.Get(ctx, redishealth.DataKey).Result()
	if queues.Note(ctx, err) != nil {
		return replyError(err)
	}
	limiter := s.limiterHealth.Watch()
	before, _ := s.claimed.Load().(string)
	address := addressOf(rdb, data)
	other, version, err := s.limiter.Claim(ctx, data, before, address, claimTTL)
	switch {
	case limiter.Note(ctx, err) != nil:
		return replyError(err)
	case version > waitdb.Version:
		return fmt.Errorf("a later version of headgate keeps this limiter's scope (data %d, here %d): "+
			"update this worker, or give it another scope; nothing is lost", version, waitdb.Version)
	case version != 0:
		return fmt.Errorf("workers of an older version of headgate give turns in this limiter's scope (data %d, here %d): "+
			"stop them all, then start this one; what waits stays, and nothing is lost", version, waitdb.Version)
	case other != "":
		return fmt.Errorf("jobs of the asynq Redis at %s wait in this limiter's scope, and those of the one at %s cannot: "+
			"want a scope for each, or a minute without the first", other, address)
	}
	s.claimed.Store(data)
	_ = s.limiter.SetWeights(ctx, s.weights, before != "") // a renewal repeats what fails here
	return nil
}

// answered returns err if Redis gave it as its answer, and nil if Redis could not be used: then it
// is not known whether the scope is another's.
func replyError(err error) error {
	if redishealth.Unavailable(err) != nil {
		return nil
	}
	return err
}

// addressOf returns where a client finds Redis, by its options: for the reader of the error, and to
// recognize a Redis that has lost its data. A Redis without a unique address is named by its data.
func addressOf(rdb redis.UniversalClient, data string) string {
	kind := fmt.Sprintf("%T", rdb)
	switch c := rdb.(type) {
	case interface{ Options() *redis.Options }:
		if o := c.Options(); o.Addr != sentinelAddr {
			return fmt.Sprintf("%s/%d", withHostname(o.Addr), o.DB)
		}
		kind = "an address that Sentinel knows"
	case interface{ Options() *redis.ClusterOptions }:
		if addrs := c.Options().Addrs; len(addrs) > 0 {
			return strings.Join(addrs, ",")
		}
	case interface{ Options() *redis.RingOptions }:
		return strings.Join(slices.Sorted(maps.Values(c.Options().Addrs)), ",")
	}
	return fmt.Sprintf("%s, where %s is %s", kind, redishealth.DataKey, data)
}

// sentinelAddr is go-redis's placeholder for an address that it gets from a Sentinel.
const sentinelAddr = "FailoverClient"

// onThisMachine adds the machine's name to an address that each machine has.
func withHostname(addr string) string {
	host, _, err := net.SplitHostPort(addr)
	if ip := net.ParseIP(host); err == nil && host != "localhost" && !ip.IsLoopback() {
		return addr
	}
	name, _ := os.Hostname()
	return addr + " on " + name
}

// keepScope renews the claim until the context ends, and compares the limits. A claim can be lost
// after this process could not reach Redis for longer than claimLife. That is logged once, and the
// claim is tried again. Jobs go on to run under their limits, but jobs of one of the two Redis
// servers may not be granted their permits.
func (s *scope) keepScope(ctx context.Context) {
	for lost := false; ; {
		if sleep(ctx, claimInterval); ctx.Err() != nil {
			return
		}
		err := s.claim(ctx)
		if err != nil && !lost && ctx.Err() == nil {
			s.log.Error("the limiter's scope was taken over", "error", err)
		}
		lost = err != nil
		s.compareLimits(ctx)
	}
}
