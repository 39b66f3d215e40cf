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
	// claimLife is how long a claim outlives the processes that made it, and
	// claimEach how often they renew it: two renewals may fail.
	claimLife = time.Minute
	claimEach = 20 * time.Second
)

// claim claims the limiter's scope for the asynq Redis of this server: who gives
// turns calls all jobs that wait there, and can do so in one asynq Redis only. It
// fails if another has the scope; where one of the two cannot be asked, it is
// left for later. It takes three round trips.
//
// A claim is for data at an address, and either will do: after a failover the data
// are the same at another address, and after a loss other data are at the same one.
// Where no address is known, as behind a Sentinel, those who run already know which
// data they had before, and take the others in their place.
//
// It also sees to it that workers of one version only run in a scope: what an older one
// has left is brought over, once none of its workers gives turns.
func (s *Server) claim(ctx context.Context) error {
	rdb, queues := s.db.Redis, s.queueHealth.Watch()
	if err := rdb.SetNX(ctx, redishealth.DataKey, uuid.NewString(), 0).Err(); queues.Note(ctx, err) != nil {
		return answered(err)
	}
	data, err := rdb.Get(ctx, redishealth.DataKey).Result()
	if queues.Note(ctx, err) != nil {
		return answered(err)
	}
	limiter := s.limiterHealth.Watch()
	before, _ := s.claimed.Load().(string)
	address := addressOf(rdb, data)
	other, version, err := s.limiter.Claim(ctx, data, before, address, claimLife)
	if limiter.Note(ctx, err) != nil {
		return answered(err)
	}
	switch {
	case version > waitdb.Version:
		return fmt.Errorf("a later version of headgate keeps this limiter's scope (data %d, here %d): "+
			"update this worker, or give it another scope; nothing is lost", version, waitdb.Version)
	case version != 0:
		return fmt.Errorf("workers of an older version of headgate give turns in this limiter's scope (data %d, here %d): "+
			"stop them all, then start this one; what waits stays, and nothing is lost", version, waitdb.Version)
	}
	if other != "" {
		return fmt.Errorf("jobs of the asynq Redis at %s wait in this limiter's scope, and those of the one at %s cannot: "+
			"want a scope for each, or a minute without the first", other, address)
	}
	s.claimed.Store(data)
	_ = s.limiter.SetWeights(ctx, s.weights, before != "") // what fails here a renewal says
	return nil
}

// answered returns err if Redis gave it as its answer, and nil if Redis could not be
// used: who was not answered does not know that the scope is another's.
func answered(err error) error {
	if redishealth.Unreachable(err) != nil {
		return nil
	}
	return err
}

// addressOf is where a client finds Redis, as its options have it: for a person who
// reads the error, and to know a Redis again that has lost its data. One that no
// address tells from all others is named by its data.
func addressOf(rdb redis.UniversalClient, data string) string {
	kind := fmt.Sprintf("%T", rdb)
	switch c := rdb.(type) {
	case interface{ Options() *redis.Options }:
		if o := c.Options(); o.Addr != sentinelAddr {
			return fmt.Sprintf("%s/%d", onThisMachine(o.Addr), o.DB)
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

// sentinelAddr is what go-redis says instead of an address that it asks a Sentinel
// for.
const sentinelAddr = "FailoverClient"

// onThisMachine adds the machine's name to an address that each machine has.
func onThisMachine(addr string) string {
	host, _, err := net.SplitHostPort(addr)
	if ip := net.ParseIP(host); err == nil && host != "localhost" && !ip.IsLoopback() {
		return addr
	}
	name, _ := os.Hostname()
	return addr + " on " + name
}

// keepScope renews the claim until the context ends, and compares the limits.
func (s *Server) keepScope(ctx context.Context) {
	renew := time.NewTicker(claimEach)
	defer renew.Stop()
	lost := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-renew.C:
		}
		lost = s.renewClaim(ctx, lost)
		s.compareLimits(ctx)
	}
}

// renewClaim reports whether the claim is lost, which it can be after this process
// could not reach Redis for longer than claimLife. Then it is logged once, and tried
// again; jobs go on to run under their limits, but those of one of the two Redis
// servers may not be called back.
func (s *Server) renewClaim(ctx context.Context, lost bool) bool {
	err := s.claim(ctx)
	if err != nil && !lost && ctx.Err() == nil {
		s.log.Error("the limiter's scope was taken over", "error", err)
	}
	return err != nil
}
