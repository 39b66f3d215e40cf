package page_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// offline returns a client of a Redis that is down.
func offline() redis.UniversalClient {
	return redis.NewClient(&redis.Options{MaxRetries: -1, Dialer: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("offline")
	}})
}

// counting counts reads of Redis's time. Each snapshot takes a few of them.
type counting struct{ times atomic.Int64 }

func (c *counting) around(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	if cmd.Name() == "time" {
		c.times.Add(1)
	}
	return next(ctx, cmd)
}
