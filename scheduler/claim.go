package scheduler

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
)

const (
	// dataKey is a key in the asynq Redis that names its data: a random text that
	// goes with them when they move to another address.
	dataKey = "headgate:id"
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
func (s *Server) claim(ctx context.Context) error {
	rdb := s.promoter.rdb
	if err := rdb.SetNX(ctx, dataKey, uuid.NewString(), 0).Err(); err != nil {
		return answered(err)
	}
	data, err := rdb.Get(ctx, dataKey).Result()
	if err != nil {
		return answered(err)
	}
	address := addressOf(rdb)
	other, err := s.limiter.Turns().Claim(ctx, data, address, claimLife)
	if err != nil {
		return answered(err)
	}
	if other != "" {
		return fmt.Errorf("jobs of the asynq Redis at %s wait in this limiter's scope, and those of the one at %s cannot: "+
			"want a scope for each, or a minute without the first", other, address)
	}
	return nil
}

// answered returns err if Redis gave it as its answer, and nil if Redis could not be
// used: who was not answered does not know that the scope is another's.
func answered(err error) error {
	if unreachable(err) != nil {
		return nil
	}
	return err
}

// addressOf is where a client finds Redis, as its options have it: for a person who
// reads the error, and to know a Redis again that has lost its data. A client
// of another kind is named by its type.
func addressOf(rdb redis.UniversalClient) string {
	switch c := rdb.(type) {
	case interface{ Options() *redis.Options }:
		return fmt.Sprintf("%s/%d", c.Options().Addr, c.Options().DB)
	case interface{ Options() *redis.ClusterOptions }:
		return strings.Join(c.Options().Addrs, ",")
	}
	return fmt.Sprintf("%T", rdb)
}

// keepClaim renews the claim until the context ends. A claim can be lost while this
// process cannot reach Redis for longer than claimLife. Then it is logged once, and
// tried again; jobs go on to run under their limits, but those of one of the two
// Redis servers may not be called back.
func (s *Server) keepClaim(ctx context.Context) {
	renew := time.NewTicker(claimEach)
	defer renew.Stop()
	lost := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-renew.C:
		}
		err := s.claim(ctx)
		if err != nil && !lost && ctx.Err() == nil {
			s.log.Error("the limiter's scope was taken over", "error", err)
		}
		lost = err != nil
	}
}
