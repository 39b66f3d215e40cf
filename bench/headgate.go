package main

import (
	"context"
	"errors"
	"log/slog"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/throttle"
)

// startHeadgate is a starter of a stock headgate server. If blocked, the shared limit is paused.
func startHeadgate(b *bench, s spec, blocked bool, h *history) (func(), error) {
	limiter := throttle.New(b.rdb, throttle.Options{})
	if blocked {
		if err := errors.Join(limiter.Define(b.ctx, s.limits()...), limiter.Pause(b.ctx, shared)); err != nil {
			return nil, err
		}
	}
	return b.serve(s, scheduler.Rules{Limits: s.limits(), RuleFor: headgateRule}, h)
}

// serve starts a headgate server that records its jobs in h.
func (b *bench) serve(s spec, rules scheduler.Rules, h *history) (stop func(), err error) {
	srv, err := scheduler.NewServer(b.rdb, rules, serverConfig(s), scheduler.WithLogger(slog.New(slog.NewTextHandler(b.stderr, nil))))
	if err != nil {
		return nil, err
	}
	return srv.Shutdown, srv.Start(handler(h))
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
