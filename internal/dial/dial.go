// Package dial connects to the Redis that a config names, or to the one within a worker.
package dial

import (
	"cmp"
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

	"github.com/headgate/headgate/internal/config"
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
)

// ErrNoRedis is what commands say that need a Redis where there is none.
var ErrNoRedis = errors.New("no Redis is configured and no worker with a Redis of its own is running:" +
	" write redis: in headgate.yaml, use --redis URL, or start \"worker run\" first")

// Config returns a client of the configured Redis, or else of the one within
// a running worker. Redis has answered when it returns.
func Config(ctx context.Context, c *config.Config) (redis.UniversalClient, error) {
	if !c.Redis.IsZero() {
		return Redis(ctx, c.Redis)
	}
	addr, ok := embedded.Find(ctx)
	if !ok {
		return nil, ErrNoRedis
	}
	return Embedded(ctx, addr)
}

// Embedded is Redis for the Redis within a worker.
func Embedded(ctx context.Context, addr string) (redis.UniversalClient, error) {
	return Redis(ctx, config.EmbeddedRedis(func(ctx context.Context, _, _ string) (net.Conn, error) {
		return embedded.Dial(ctx, addr)
	}))
}

// Redis connects to Redis. The error says in one line which Redis could not be
// reached and why.
func Redis(ctx context.Context, r config.Redis) (redis.UniversalClient, error) {
	quiet()
	rdb, err := r.Client()
	if err != nil {
		return nil, err
	}
	patient, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	reason := &dialError{start: time.Now(), giveUp: cancel}
	rdb.AddHook(reason)
	if err := rdb.Ping(patient).Err(); err != nil {
		err = reason.or(err)
		if errors.Is(err, context.DeadlineExceeded) {
			err = cmp.Or(once(ctx, r), err)
		}
		what := "cannot reach Redis at %s: %w"
		switch {
		case trouble.Of(err) == trouble.Password:
			what = "Redis at %s refuses the password, or there is no such user: %w"
		case r.ByTLS() && errors.Is(err, context.DeadlineExceeded):
			what = "Redis at %s does not answer; it may be one without TLS, which is redis://: %w"
		case !r.ByTLS() && (errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)):
			what = "Redis at %s hangs up; it may be one with TLS, which is rediss://: %w"
		}
		return nil, errors.Join(fmt.Errorf(what, r, err), rdb.Close())
	}
	return rdb, nil
}

// once says why a server does not answer that was dialled: one that wants a certificate
// says so only then, and a patient client forgets what the last try came to.
func once(ctx context.Context, r config.Redis) error {
	rdb, err := r.Impatient().Client()
	if err != nil {
		return err
	}
	defer rdb.Close()
	ctx, cancel := context.WithTimeout(ctx, refusedPatience)
	defer cancel()
	return rdb.Ping(ctx).Err()
}

// dialError keeps the last reason for which a client could not connect: what
// the client itself says in the end is only that it ran out of time.
type dialError struct {
	start  time.Time
	giveUp func()

	mu   sync.Mutex
	last error
}

func (e *dialError) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := next(ctx, network, addr)
		e.mu.Lock()
		defer e.mu.Unlock()
		if err == nil || ctx.Err() == nil {
			e.last = err
		}
		if errors.Is(err, syscall.ECONNREFUSED) && time.Since(e.start) > refusedPatience {
			e.giveUp()
		}
		return conn, err
	}
}

func (e *dialError) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (e *dialError) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (e *dialError) or(err error) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.last != nil {
		return e.last
	}
	return err
}

// quiet stops go-redis from writing to standard error by itself; what it has
// to say comes back as errors.
var quiet = sync.OnceFunc(logging.Disable)

// Limiter is the limiter of the config's scope and app.
func Limiter(rdb redis.UniversalClient, c *config.Config) *lanes.Lanes {
	return lanes.New(throttle.New(rdb, throttle.RedisOptions{Scope: c.Scope, App: c.App}))
}
