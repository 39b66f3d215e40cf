package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/cli"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/dial"
	"github.com/headgate/headgate/internal/embedded"
	"github.com/headgate/headgate/internal/jobspec"
	"github.com/headgate/headgate/throttle"
)

// queues is asynq's view of Redis, and the limiter's of the jobs in it.
type queues struct {
	rdb       redis.UniversalClient
	config    *config.Config
	inspector *asynq.Inspector
	limiter   *throttle.Lanes
}

// connectQueues connects to the config's Redis; the caller must close it.
func connectQueues(ctx context.Context, g *cli.Globals) (*queues, error) {
	c, err := g.Load()
	if err != nil {
		return nil, err
	}
	rdb, err := dial.Config(ctx, c)
	if err != nil {
		return nil, err
	}
	return newQueues(rdb, c), nil
}

func newQueues(rdb redis.UniversalClient, c *config.Config) *queues {
	return &queues{rdb, c, asynq.NewInspectorFromRedisClient(rdb), dial.Limiter(rdb, c)}
}

// keptQueues is for looking at what the next worker with a Redis of its own will find,
// and says what that is. The error is dial.ErrNoRedis if that is nothing.
func keptQueues(ctx context.Context, g *cli.Globals, stderr io.Writer) (*queues, error) {
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
	return newQueues(rdb, c), nil
}

func (q *queues) close() { _ = q.rdb.Close() }

// job is the job of an id, in the one queue that has it or in the one that is named.
func (q *queues) job(id, queue string) (*asynq.TaskInfo, error) {
	jobs, err := q.find(id, queue)
	if err != nil {
		return nil, err
	}
	if len(jobs) > 1 {
		var names []string
		for _, job := range jobs {
			names = append(names, job.Queue)
		}
		return nil, cli.Usagef("job %s is in the queues %s: name one with --queue", id, strings.Join(names, ", "))
	}
	return jobs[0], nil
}

// retry brings a job back to its queue.
func (q *queues) retry(_ context.Context, job *asynq.TaskInfo) error {
	return q.inspector.RunTask(job.Queue, job.ID)
}

// pendingSince is since when a job is pending, which asynq keeps but does not
// tell: zero if it is not any more.
func (q *queues) pendingSince(ctx context.Context, job *asynq.TaskInfo) (time.Time, error) {
	text, err := q.rdb.HGet(ctx, "asynq:{"+job.Queue+"}:t:"+job.ID, "pending_since").Result()
	if errors.Is(err, redis.Nil) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, err
	}
	ns, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, nil // another asynq's way to write it
	}
	return time.Unix(0, ns), nil
}

// started is when an active job was started: zero if no server says so.
func (q *queues) started(job *asynq.TaskInfo) (time.Time, error) {
	servers, err := q.inspector.Servers()
	if err != nil {
		return time.Time{}, err
	}
	for _, server := range servers {
		for _, w := range server.ActiveWorkers {
			if w.TaskID == job.ID && w.Queue == job.Queue {
				return w.Started, nil
			}
		}
	}
	return time.Time{}, nil
}
