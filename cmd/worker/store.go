package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/cli"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/embedded"
)

// store is the Redis of a worker, which may run within it.
type store struct {
	redis.UniversalClient
	own *embedded.Server // nil unless this worker runs it
}

// openStore connects to the configured Redis. Where there is none it starts
// one, or joins the worker that has.
func openStore(ctx context.Context, c *config.Config, stdio cli.IO) (*store, error) {
	if !c.Redis.IsZero() {
		rdb, err := cli.Dial(ctx, c.Redis)
		return &store{UniversalClient: rdb}, err
	}
	server, err := embedded.Start()
	if running, ok := errors.AsType[*embedded.RunningError](err); ok {
		fmt.Fprintf(stdio.Err, "worker: using the Redis within another worker, at %s: nothing in it survives that worker\n", running.Addr)
		rdb, err := cli.DialEmbedded(ctx, running.Addr)
		return &store{UniversalClient: rdb}, err
	}
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(stdio.Err, "worker: no Redis is configured: using one within this worker, at %s; nothing in it survives a restart\n", server.Addr())
	rdb, err := cli.DialEmbedded(ctx, server.Addr())
	if err != nil {
		return nil, errors.Join(err, server.Close())
	}
	return &store{rdb, server}, nil
}

func (s *store) close() {
	_ = s.Close()
	if s.own != nil {
		_ = s.own.Close()
	}
}
