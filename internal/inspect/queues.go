// Package inspect tells what becomes of jobs: where they are, how many of them, and how the
// limits that they wait for stand.
package inspect

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/history"
	"github.com/headgate/headgate/scheduler/lanes"
	"github.com/headgate/headgate/throttle"
)

// Queues is asynq's view of Redis, and the limiter's of the jobs in it.
type Queues struct {
	Inspector *asynq.Inspector
	Limiter   *lanes.Lanes

	rdb   redis.UniversalClient
	db    asynqdb.DB // the same
	scope string
	judge Judge
}

// New looks at the queues of a Redis, and at the limiter of a scope there.
func New(rdb redis.UniversalClient, limiter *lanes.Lanes, scope string) *Queues {
	return &Queues{Inspector: asynq.NewInspectorFromRedisClient(rdb), Limiter: limiter, rdb: rdb, db: asynqdb.New(rdb), scope: scope}
}

// Close ends its client.
func (q *Queues) Close() { _ = q.rdb.Close() }

// Forecast is when the jobs that wait would run.
func (q *Queues) Forecast(ctx context.Context, opts lanes.ForecastOptions) (*lanes.Forecast, error) {
	return history.Forecast(ctx, q.Limiter, q.rdb, opts)
}

// Named lists the jobs of an id, in whatever queues, or in the one that is named.
// There is at least one.
func (q *Queues) Named(ctx context.Context, id, queue string) ([]Job, error) {
	jobs, err := q.Namesakes(ctx, id, queue)
	if err == nil && len(jobs) == 0 {
		where := ""
		if queue != "" {
			where = " in queue " + queue
		}
		err = fmt.Errorf("there is no job %s%s: it never was, was deleted, or is done and had no retention", id, where)
	}
	return jobs, err
}

// Namesakes is Named where there may be none.
func (q *Queues) Namesakes(ctx context.Context, id, queue string) (jobs []Job, err error) {
	names, err := q.Names(ctx, queue)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		job, err := q.Job(ctx, throttle.JobID{Queue: name, ID: id})
		switch {
		case err == nil:
			jobs = append(jobs, job)
		case !errors.Is(err, asynq.ErrTaskNotFound) && !errors.Is(err, asynq.ErrQueueNotFound):
			return nil, err
		}
	}
	return jobs, nil
}

// Job is one job. The error is asynq's if there is none.
func (q *Queues) Job(ctx context.Context, id throttle.JobID) (Job, error) {
	info, err := q.Inspector.GetTaskInfo(id.Queue, id.ID)
	if err != nil {
		return Job{}, err
	}
	jobs, err := q.look(ctx, []*asynq.TaskInfo{info})
	if err != nil {
		return Job{}, err
	}
	return jobs[0], nil
}

// Names lists the queues, or the one that is named if there is such a queue: one that a
// process has left that died while it started, too.
func (q *Queues) Names(ctx context.Context, queue string) ([]string, error) {
	if queue == "" {
		return q.db.Queues(ctx)
	}
	names, err := q.Inspector.Queues()
	if err != nil {
		return nil, err
	}
	if !slices.Contains(names, queue) {
		return nil, fmt.Errorf("there is no queue %s", queue)
	}
	return []string{queue}, nil
}
