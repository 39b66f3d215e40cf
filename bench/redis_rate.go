package main

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
)

// timedRedis notes in a call's visit when redis_rate admitted the call; the reply does not say it.
// The limit's key holds the time at which the limit is unused again, and the reply says how far
// away that time is. timedRedis reads the key in the same pipeline as the reply, and subtracts.
type timedRedis struct{ *redis.Client }

func (r timedRedis) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	pipeline := r.Pipeline()
	decision := pipeline.EvalSha(ctx, sha, keys, args...)
	state := pipeline.Get(ctx, keys[0])
	_, _ = pipeline.Exec(ctx) // each command carries its own error
	reply, err := decision.Slice()
	if err != nil || len(reply) != 4 || reply[0] == int64(0) { // denied
		return decision
	}
	resetAfter, err1 := strconv.ParseFloat(fmt.Sprint(reply[3]), 64)
	resetAt, err2 := state.Float64()
	if err1 == nil && err2 == nil {
		const epoch = 1483228800 // the second that redis_rate counts from
		noteVisit(ctx, time.UnixMicro(epoch*1e6+int64(math.Round((resetAt-resetAfter)*1e6))))
	}
	return decision
}

// timedRate returns a redis_rate limiter with timedRedis.
func timedRate(ctx context.Context, rdb *redis.Client) (*redis_rate.Limiter, error) {
	limiter := redis_rate.NewLimiter(timedRedis{rdb})
	// The first call loads redis_rate's script, so that no later one repeats.
	_, err := limiter.Allow(ctx, "warm-up", redis_rate.PerSecond(1))
	return limiter, err
}
