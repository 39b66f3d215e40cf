package main

import (
	"context"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
)

// timedRedis lets redis_rate tell when it decided, which its answer does not:
// with each of its scripts it asks for Redis's TIME, in the same pipeline, and
// notes that in the call's visit.
type timedRedis struct{ *redis.Client }

func (r timedRedis) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	pipeline := r.Pipeline()
	decision := pipeline.EvalSha(ctx, sha, keys, args...)
	now := pipeline.Time(ctx)
	_, _ = pipeline.Exec(ctx) // each command carries its own error
	if at, err := now.Result(); err == nil {
		noteVisit(ctx, at)
	}
	return decision
}

// timedRate is a redis_rate limiter that tells when it decided.
func timedRate(ctx context.Context, rdb *redis.Client) (*redis_rate.Limiter, error) {
	limiter := redis_rate.NewLimiter(timedRedis{rdb})
	// Its script is loaded with the first call, so that no later one repeats.
	_, err := limiter.Allow(ctx, "warm-up", redis_rate.PerSecond(1))
	return limiter, err
}
