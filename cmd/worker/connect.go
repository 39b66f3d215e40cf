package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/cli"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/embedded"
	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/internal/words"
	"github.com/headgate/headgate/internal/worker"
	"github.com/headgate/headgate/scheduler/cron"
)

// connection is the one of a command to Redis, which is made when the command asks for what
// is there: kong gives it to each Run that has it, or what it opens, among its arguments.
type connection struct {
	globals *cli.Globals
	conf    *config.Config        // nil until it is loaded, once: it may be read from a pipe
	rdb     redis.UniversalClient // nil until then
}

func (c *connection) load() (_ *config.Config, err error) {
	if c.conf == nil {
		c.conf, err = c.globals.Load()
	}
	return c.conf, err
}

func (c *connection) open(ctx context.Context) (conf *config.Config, rdb redis.UniversalClient, err error) {
	if conf, err = c.load(); err == nil {
		c.rdb, err = conf.Redis.Connect(ctx)
	}
	return conf, c.rdb, err
}

func (c *connection) close() {
	if c.rdb != nil {
		_ = c.rdb.Close()
	}
}

func (c *connection) queues(ctx context.Context) (*inspect.Queues, error) {
	conf, rdb, err := c.open(ctx)
	if err != nil {
		return nil, err
	}
	return inspect.New(rdb, conf.Limiter(rdb), conf.Scope), nil
}

func (c *connection) schedules(ctx context.Context) (*cron.Runner, error) {
	conf, rdb, err := c.open(ctx)
	if err != nil {
		return nil, err
	}
	return worker.Schedules(rdb, conf, nil)
}

// kept is for looking at what the next worker with a Redis of its own will find, and says
// what that is. The error is config.ErrNoRedis if that is nothing.
func (c *connection) kept(ctx context.Context, stderr io.Writer) (*inspect.Queues, error) {
	conf, err := c.globals.Load()
	if err != nil {
		return nil, err
	}
	folder, err := embedded.Default()
	if err != nil {
		return nil, err
	}
	rest, err := folder.Look()
	if err != nil {
		return nil, err
	}
	text := fmt.Sprintf("worker: no worker is running: added for the next one: %s", words.Count(rest.Spooled, "job"))
	switch {
	case rest.Saved.IsZero() && rest.Spooled == 0:
		return nil, config.ErrNoRedis
	case !rest.Saved.IsZero():
		text += fmt.Sprintf("; kept of the last one, as of %s:", rest.Saved.Format(time.DateTime))
	}
	fmt.Fprintln(stderr, text)
	if c.rdb, err = config.EmbeddedRedis(rest.Dial).Connect(ctx); err != nil {
		return nil, err
	}
	return inspect.New(c.rdb, conf.Limiter(c.rdb), conf.Scope), nil
}
