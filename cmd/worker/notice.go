package main

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// noticeAfter is the time without a reply of Redis after which the notice is printed.
const noticeAfter = 2 * time.Second

// notice is a hook of a Redis client. It prints that Redis does not answer, once for each outage.
type notice struct {
	out   io.Writer
	redis string // which Redis
	said  atomic.Bool
}

func (n *notice) during(call func() error) error {
	timer := time.AfterFunc(noticeAfter, func() {
		if !n.said.Swap(true) {
			fmt.Fprintf(n.out, "worker: waiting for Redis, which does not answer: %s\n", n.redis)
		}
	})
	defer timer.Stop()
	err := call()
	if err == nil {
		n.said.Store(false)
	}
	return err
}

func (n *notice) DialHook(next redis.DialHook) redis.DialHook { return next }

func (n *notice) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, command redis.Cmder) error {
		return n.during(func() error { return next(ctx, command) })
	}
}

func (n *notice) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, commands []redis.Cmder) error {
		return n.during(func() error { return next(ctx, commands) })
	}
}
