package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/cli"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/dial"
	"github.com/headgate/headgate/internal/embedded"
	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/internal/jobspec"
	"github.com/headgate/headgate/scheduler/lanes"
	"github.com/headgate/headgate/throttle"
)

// open reads the config and connects to its Redis; the caller must close it.
func open(ctx context.Context, g *cli.Globals) (*config.Config, redis.UniversalClient, error) {
	c, err := g.Load()
	if err != nil {
		return nil, nil, err
	}
	rdb, err := dial.Config(ctx, c)
	return c, rdb, err
}

// connect returns the limiter of the config's Redis; the caller must call done.
func connect(ctx context.Context, g *cli.Globals) (limiter *lanes.Lanes, done func(), err error) {
	c, rdb, err := open(ctx, g)
	if err != nil {
		return nil, nil, err
	}
	return dial.Limiter(rdb, c), func() { _ = rdb.Close() }, nil
}

// badUnlessDown makes the limiter's refusal of arguments a usage error.
func badUnlessDown(err error) error {
	if err == nil || errors.Is(err, throttle.ErrUnavailable) || errors.Is(err, throttle.ErrNoLimit) {
		return err
	}
	return cli.Usagef("%w", err)
}

// openQueues connects to the config's Redis; the caller must close it.
func openQueues(ctx context.Context, g *cli.Globals) (*inspect.Queues, error) {
	c, rdb, err := open(ctx, g)
	if err != nil {
		return nil, err
	}
	return inspect.New(rdb, dial.Limiter(rdb, c), c.Scope), nil
}

// keptQueues is for looking at what the next worker with a Redis of its own will find,
// and says what that is. The error is dial.ErrNoRedis if that is nothing.
func keptQueues(ctx context.Context, g *cli.Globals, stderr io.Writer) (*inspect.Queues, error) {
	c, err := g.Load()
	if err != nil {
		return nil, err
	}
	rest, err := embedded.Look()
	if err != nil {
		return nil, err
	}
	text := fmt.Sprintf("worker: no worker is running: added for the next one: %s", jobspec.Count(rest.Spooled))
	switch {
	case rest.Saved.IsZero() && rest.Spooled == 0:
		return nil, dial.ErrNoRedis
	case !rest.Saved.IsZero():
		text += fmt.Sprintf("; kept of the last one, as of %s:", rest.Saved.Format(time.DateTime))
	}
	fmt.Fprintln(stderr, text)
	rdb, err := dial.Redis(ctx, config.EmbeddedRedis(rest.Dial))
	if err != nil {
		return nil, err
	}
	return inspect.New(rdb, dial.Limiter(rdb, c), c.Scope), nil
}

func findJob(ctx context.Context, q *inspect.Queues, id, queue string) (inspect.Job, error) {
	jobs, err := q.Named(ctx, id, queue)
	if err != nil {
		return inspect.Job{}, err
	}
	if len(jobs) > 1 {
		var names []string
		for _, job := range jobs {
			names = append(names, job.Queue)
		}
		return inspect.Job{}, cli.Usagef("job %s is in the queues %s: name one with --queue", id, strings.Join(names, ", "))
	}
	return jobs[0], nil
}

func find(ctx context.Context, limiter *lanes.Lanes, name string) (throttle.Limit, bool, error) {
	limits, err := limiter.Limits(ctx)
	for _, l := range limits {
		if l.Name == name {
			return l, true, err
		}
	}
	return throttle.Limit{Name: name}, false, err
}
