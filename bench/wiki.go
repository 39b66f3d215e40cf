package main

import (
	"context"
	"errors"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/hibiken/asynq"
)

// limitedError is how a handler says that it was denied in asynq's wiki.
type limitedError struct{ retryIn time.Duration }

func (e *limitedError) Error() string { return "rate limited, retry in " + e.retryIn.String() }

// startWiki is the rate limiting of asynq's wiki, with a limiter in Redis and poll intervals as
// short as headgate's. It asks the host's limit first, because a permit is lost if the next limit
// denies.
func startWiki(b *bench, s spec, blocked bool, h *history) (func(), error) {
	limiter, err := timedRate(b.ctx, b.rdb)
	if err != nil {
		return nil, err
	}
	limit := rateLimit{shared, redis_rate.Limit{Rate: s.Rate, Period: time.Second, Burst: s.burst()}}
	if blocked {
		limit.Limit = redis_rate.PerHour(1)
		if _, err := limiter.Allow(b.ctx, shared, limit.Limit); err != nil {
			return nil, err
		}
	}
	config := serverConfig(s)
	config.TaskCheckInterval, config.DelayedTaskCheckInterval = 10*time.Millisecond, time.Second
	config.IsFailure = func(err error) bool {
		_, limited := errors.AsType[*limitedError](err)
		return !limited
	}
	config.RetryDelayFunc = func(n int, err error, task *asynq.Task) time.Duration {
		if limited, ok := errors.AsType[*limitedError](err); ok {
			return limited.retryIn
		}
		return asynq.DefaultRetryDelayFunc(n, err, task)
	}
	srv := asynq.NewServerFromRedisClient(b.rdb, config)
	return srv.Shutdown, srv.Start(visited(rateLimited(limiter, h, func(j job) []rateLimit {
		if j.Host == "" {
			return []rateLimit{limit}
		}
		return []rateLimit{{j.Host, redis_rate.Limit{Rate: s.HostRate, Period: time.Second, Burst: 1}}, limit}
	})))
}

// startRate is bare asynq with limits of redis_rate that never deny.
func startRate(limits int) starter {
	return func(b *bench, s spec, _ bool, h *history) (func(), error) {
		var all []rateLimit
		for _, limit := range roomyLimits(limits) {
			all = append(all, rateLimit{limit.Name, redis_rate.PerSecond(roomy)})
		}
		srv := asynq.NewServerFromRedisClient(b.rdb, serverConfig(s))
		return srv.Shutdown, srv.Start(rateLimited(redis_rate.NewLimiter(b.rdb), h, func(job) []rateLimit { return all }))
	}
}

// rateLimit is a limit of redis_rate and its key.
type rateLimit struct {
	key string
	redis_rate.Limit
}

// rateLimited calls redis_rate for one limit of a job after the other.
func rateLimited(limiter *redis_rate.Limiter, h *history, limitsOf func(job) []rateLimit) asynq.Handler {
	next := handler(h)
	return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		j, err := jobOf(task)
		if err != nil {
			return err
		}
		for _, limit := range limitsOf(j) {
			result, err := limiter.Allow(ctx, limit.key, limit.Limit)
			if err != nil {
				return err
			}
			if result.Allowed == 0 {
				h.denied()
				return &limitedError{result.RetryAfter}
			}
		}
		return next.ProcessTask(ctx, task)
	})
}

// startBare is asynq without limits.
func startBare(b *bench, s spec, _ bool, h *history) (func(), error) {
	srv := asynq.NewServerFromRedisClient(b.rdb, serverConfig(s))
	return srv.Shutdown, srv.Start(handler(h))
}
