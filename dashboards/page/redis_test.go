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

// offline is a Redis that is not there.
func offline() redis.UniversalClient {
	return redis.NewClient(&redis.Options{MaxRetries: -1, Dialer: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("offline")
	}})
}

// counting counts how often Redis is asked for its time, which each turn of the
// reader begins with, and for which limits there are.
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
