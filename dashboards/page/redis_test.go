package page_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// offline returns a client of a Redis that is down.
func offline() redis.UniversalClient {
	return redis.NewClient(&redis.Options{MaxRetries: -1, Dialer: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("offline")
	}})
}

// counting counts reads of Redis's time, with which each snapshot begins, and of the names of limits.
type counting struct{ times, limits atomic.Int64 }

func (c *counting) around(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	switch cmd.Name() {
	case "time":
		c.times.Add(1)
	case "smembers":
		if args := cmd.Args(); strings.HasSuffix(fmt.Sprint(args[1]), "}:limits") {
			c.limits.Add(1)
		}
	}
	return next(ctx, cmd)
}
