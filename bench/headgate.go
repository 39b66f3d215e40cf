package main

import (
	"context"
	"log/slog"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/throttle"
)

// startHeadgate starts a server with stock settings.
func startHeadgate(b *bench, s spec, blocked bool, h *history) (func(), error) {
	limiter, err := define(b, s, blocked)
	if err != nil {
		return nil, err
	}
	rules := scheduler.Rules{Limits: s.limits(), RuleFor: headgateRule}
	srv, err := scheduler.NewServer(b.rdb, rules, serverConfig(s), scheduler.WithLimiter(limiter.Limiter),
		scheduler.WithLogger(slog.New(slog.NewTextHandler(b.stderr, nil))))
	if err != nil {
		return nil, err
	}
	return srv.Shutdown, srv.Start(handler(h))
}

// define defines the limits, the shared one blocked or not.
func define(b *bench, s spec, blocked bool) (*waitdb.DB, error) {
	limiter := waitdb.New(throttle.New(b.rdb, throttle.Options{}))
	if err := limiter.Define(b.ctx, s.limits()...); err != nil {
		return nil, err
	}
	if blocked {
		return limiter, limiter.Pause(b.ctx, shared)
	}
	return limiter, nil
}

func headgateRule(_ context.Context, task *asynq.Task) (scheduler.Rule, error) {
	needs := []throttle.Need{{Limit: shared}}
	j, err := jobOf(task)
	if j.Host != "" {
		needs = append(needs, throttle.Need{Limit: perHost, Key: j.Host})
	}
	return scheduler.Rule{Needs: needs}, err
}

// silent discards logs.
var silent = slog.New(slog.DiscardHandler)
