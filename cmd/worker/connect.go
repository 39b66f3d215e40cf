package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/cmd/internal/cli"
	"github.com/headgate/headgate/cmd/internal/config"
	"github.com/headgate/headgate/cmd/internal/worker"
	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/scheduler/cron"
)

// connection is a command's connection to Redis. It opens when kong calls one of its providers for
// the argument of a Run method.
type connection struct {
	globals *cli.Globals
	stderr  io.Writer
	conf    *config.Config // loaded once, because it may be a pipe
	end     func() error   // closes the connection; nil until it is open
}

func (c *connection) load() (_ *config.Config, err error) {
	if c.conf == nil {
		c.conf, err = c.globals.Load()
	}
	return c.conf, err
}

// noticeAfter is the time without a connection after which a command prints that it waits.
const noticeAfter = 2 * time.Second

func (c *connection) open(ctx context.Context) (conf *config.Config, rdb redis.UniversalClient, err error) {
	if conf, err = c.load(); err != nil {
		return nil, nil, err
	}
	notice := time.AfterFunc(noticeAfter, func() { fmt.Fprintln(c.stderr, "worker: waiting for Redis, which does not answer") })
	defer notice.Stop()
	rdb, c.end, err = conf.Redis.Connect(ctx)
	return conf, rdb, err
}

func (c *connection) close() {
	if c.end != nil {
		_ = c.end()
	}
}

func (c *connection) queues(ctx context.Context) (*inspect.Queues, error) {
	conf, rdb, err := c.open(ctx)
	if err != nil {
		return nil, err
	}
	q := inspect.New(rdb, conf.WaitDB(rdb), conf.Scope)
	q.Rules = inspect.Rules{RuleFor: conf.RequirementsOf, ServedQueues: conf.ServedQueues(), Limits: conf.Limits}
	q.Sharded = conf.Sharded
	return q, nil
}

func (c *connection) schedules(ctx context.Context) (*cron.Runner, error) {
	conf, rdb, err := c.open(ctx)
	if err != nil {
		return nil, err
	}
	return worker.Schedules(rdb, conf, nil)
}
