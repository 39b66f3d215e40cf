package config

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/headgate/headgate/internal/embedded"
	"github.com/headgate/headgate/internal/trouble"
	"github.com/headgate/headgate/scheduler/lanes"
	"github.com/headgate/headgate/throttle"
)

// How long a command tries to reach Redis before it gives up: patience for an
// answer, and less where nobody listens, which is hardly ever a matter of time.
const (
	patience        = 3 * time.Second
	refusedPatience = time.Second
	pause           = 50 * time.Millisecond
)

// ErrNoRedis is what commands say that need a Redis where there is none.
var ErrNoRedis = errors.New("no Redis is configured and no worker with a Redis of its own is running:" +
	" write redis: in headgate.yaml, use --redis URL, or start \"worker run\" first")

// Connect returns a client of the configured Redis, or else of the one within
// a running worker. Redis has answered when it returns.
func (c *Config) Connect(ctx context.Context) (redis.UniversalClient, error) {
	if !c.Redis.IsZero() {
		return c.Redis.Connect(ctx)
	}
	addr, ok := embedded.Find(ctx)
	if !ok {
		return nil, ErrNoRedis
	}
	return ConnectEmbedded(ctx, addr)
}

// Limiter is the limiter of the config's scope and app.
func (c *Config) Limiter(rdb redis.UniversalClient) *lanes.Lanes {
	return lanes.New(throttle.New(rdb, throttle.RedisOptions{Scope: c.Scope, App: c.App}))
}

// ConnectEmbedded is Connect for the Redis within a worker.
func ConnectEmbedded(ctx context.Context, addr string) (redis.UniversalClient, error) {
	return EmbeddedRedis(func(ctx context.Context, _, _ string) (net.Conn, error) {
		return embedded.Dial(ctx, addr)
	}).Connect(ctx)
}

// Connect returns a client of r, which must not be zero, once Redis has answered. The error
// says in one line which Redis could not be reached and why.
func (r Redis) Connect(ctx context.Context) (redis.UniversalClient, error) {
	quiet()
	hasty, err := r.client(true)
	if err != nil {
		return nil, err
	}
	defer hasty.Close()
	err = answers(ctx, hasty)
	if err == nil {
		return r.client(false)
	}
	what := "cannot reach Redis at %s: %w"
	switch {
	case trouble.Of(err) == trouble.Password:
		what = "Redis at %s refuses the password, or there is no such user: %w"
	case r.byTLS && errors.Is(err, context.DeadlineExceeded):
		what = "Redis at %s does not answer; it may be one without TLS, which is redis://: %w"
	case !r.byTLS && (errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)):
		what = "Redis at %s hangs up; it may be one with TLS, which is rediss://: %w"
	}
	return nil, fmt.Errorf(what, r, err)
}

// answers waits for Redis, as long as that may help. It asks through a client that tries once:
// what a patient one says in the end is only that it ran out of time.
func answers(ctx context.Context, hasty redis.UniversalClient) (err error) {
	start := time.Now()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		if said := hasty.Ping(ctx).Err(); err == nil || ctx.Err() == nil {
			err = said
		}
		t := trouble.Of(err)
		refused := errors.Is(err, syscall.ECONNREFUSED) && time.Since(start) > refusedPatience
		if t == trouble.None || !t.Passes() || refused || ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// quiet stops go-redis from writing to standard error by itself; what it has
// to say comes back as errors.
var quiet = sync.OnceFunc(logging.Disable)
