// Package inspect tells what becomes of jobs: where they are, how many of them, and how the
// limits that they wait for stand.
package inspect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/dial"
	"github.com/headgate/headgate/internal/history"
	"github.com/headgate/headgate/throttle"
)

// Queues is asynq's view of Redis, and the limiter's of the jobs in it.
type Queues struct {
	Inspector *asynq.Inspector
	Limiter   *throttle.Lanes

	rdb   redis.UniversalClient
	scope string
}

// New looks at the Redis of a config.
func New(rdb redis.UniversalClient, c *config.Config) *Queues {
	return &Queues{asynq.NewInspectorFromRedisClient(rdb), dial.Limiter(rdb, c), rdb, c.Scope}
}

// Close ends its client.
func (q *Queues) Close() { _ = q.rdb.Close() }

// Forecast is when the jobs that wait would run.
func (q *Queues) Forecast(ctx context.Context, opts throttle.ForecastOptions) (*throttle.Forecast, error) {
	return history.Forecast(ctx, q.Limiter, q.rdb, opts)
}

// Find lists the jobs of an id, in whatever queues, or in the one that is named.
// There is at least one.
func (q *Queues) Find(id, queue string) ([]*asynq.TaskInfo, error) {
	names, err := q.Names(queue)
	if err != nil {
		return nil, err
	}
	var jobs []*asynq.TaskInfo
	for _, name := range names {
		job, err := q.Inspector.GetTaskInfo(name, id)
		switch {
		case err == nil:
			jobs = append(jobs, job)
		case !errors.Is(err, asynq.ErrTaskNotFound) && !errors.Is(err, asynq.ErrQueueNotFound):
			return nil, err
		}
	}
	if len(jobs) == 0 {
		where := ""
		if queue != "" {
			where = " in queue " + queue
		}
		return nil, fmt.Errorf("there is no job %s%s: it never was, was deleted, or is done and had no retention", id, where)
	}
	return jobs, nil
}

// Names lists the queues, or the one that is named if there is such a queue.
func (q *Queues) Names(queue string) ([]string, error) {
	names, err := q.Inspector.Queues()
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	if queue == "" {
		return names, nil
	}
	if !slices.Contains(names, queue) {
		return nil, fmt.Errorf("there is no queue %s", queue)
	}
	return []string{queue}, nil
}

// PendingSince is since when a job is pending, which asynq keeps but does not
// tell: zero if it is not any more.
func (q *Queues) PendingSince(ctx context.Context, job *asynq.TaskInfo) (time.Time, error) {
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

// Started is when an active job was started: zero if no server says so.
func (q *Queues) Started(job *asynq.TaskInfo) (time.Time, error) {
	servers, err := q.Inspector.Servers()
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
