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

func isLimited(err error) bool {
	_, ok := errors.AsType[*limitedError](err)
	return ok
}

// startWiki is the rate limiting of asynq's wiki with a limiter in Redis and polls as short as
// headgate's.
func startWiki(b *bench, s spec, blocked bool, h *history) (func(), error) {
	config := serverConfig(s)
	config.TaskCheckInterval, config.DelayedTaskCheckInterval = 10*time.Millisecond, time.Second
	limiter, err := timedRate(b.ctx, b.rdb)
	if err != nil {
		return nil, err
	}
	limit := redis_rate.Limit{Rate: s.Rate, Period: time.Second, Burst: s.burst()}
	if blocked {
		limit = redis_rate.PerHour(1)
		if _, err := limiter.Allow(b.ctx, shared, limit); err != nil {
			return nil, err
		}
	}
	config.IsFailure = func(err error) bool { return !isLimited(err) }
	config.RetryDelayFunc = func(n int, err error, task *asynq.Task) time.Duration {
		if limited, ok := errors.AsType[*limitedError](err); ok {
			return limited.retryIn
		}
		return asynq.DefaultRetryDelayFunc(n, err, task)
	}
	srv := asynq.NewServerFromRedisClient(b.rdb, config)
	err = srv.Start(visited(wikiLimited(limiter, s, limit, h)))
	return srv.Shutdown, err
}

// wikiLimited asks the host's limit first, because a permit is lost if the next limit denies.
func wikiLimited(limiter *redis_rate.Limiter, s spec, limit redis_rate.Limit, h *history) asynq.Handler {
	next := handler(h)
	return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		j, err := jobOf(task)
		if err != nil {
			return err
		}
		ask := func(key string, limit redis_rate.Limit) error {
			result, err := limiter.Allow(ctx, key, limit)
			if err != nil || result.Allowed > 0 {
				return err
			}
			h.denied()
			return &limitedError{result.RetryAfter}
		}
		if j.Host != "" {
			if err := ask(j.Host, redis_rate.Limit{Rate: s.HostRate, Period: time.Second, Burst: 1}); err != nil {
				return err
			}
		}
		if err := ask(shared, limit); err != nil {
			return err
		}
		return next.ProcessTask(ctx, task)
	})
}

// startBare is asynq without limits.
func startBare(b *bench, s spec, _ bool, h *history) (func(), error) {
	srv := asynq.NewServerFromRedisClient(b.rdb, serverConfig(s))
	return srv.Shutdown, srv.Start(handler(h))
}
