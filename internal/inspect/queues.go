// Package inspect reads the state of jobs, queues and limits, and changes jobs and queues. The page
// and the commands use it.
package inspect

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/forecast"
	"github.com/headgate/headgate/internal/script"
	"github.com/headgate/headgate/internal/shard"
	"github.com/headgate/headgate/internal/stats"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// Queues combines the data of asynq and the limiter about jobs.
type Queues struct {
	Inspector *asynq.Inspector
	DB        asynqdb.DB // reads the data that the Inspector does not return
	Limiter   *waitdb.DB

	Rules   Rules        // of pending jobs; if RuleFor is nil, Forecast uses the last backlog sample
	Sharded shard.Queues // the queues with shards
	// KeyOf returns the expression of a limit's key, or the empty text if the limit has no keys. It
	// may be nil.
	KeyOf func(limit string) (expr string, known bool)

	rdb   redis.UniversalClient
	scope string
	part  *shard.Shard // nil if these are all queues; else the shard to which they belong
}

// Rules are the rules of the workers that serve some queues.
type Rules struct {
	RuleFor      stats.RuleFunc
	ServedQueues []string
	Limits       []throttle.Limit // of the config; Redis may not have them yet
}

// New returns the queues of the limiter's Redis, and the limits of its scope.
func New(limiter *waitdb.DB) *Queues {
	rdb, prefix := limiter.Scope()
	db := asynqdb.New(rdb)
	return &Queues{Inspector: db.Inspector(), DB: db, Limiter: limiter, rdb: rdb, scope: script.Scope(prefix)}
}

// Workers returns the processes that run jobs of all scopes.
func (q *Queues) Workers(ctx context.Context) (all []stats.Process, err error) {
	for _, in := range q.Scopes() {
		workers, err := stats.ReadProcesses(ctx, in.rdb, in.scope)
		if err != nil {
			return nil, err
		}
		all = addWorkers(all, workers)
	}
	return all, nil
}

// Scope returns the name of the limiter's scope.
func (q *Queues) Scope() string { return q.scope }

// Close closes the limiter's Redis client.
func (q *Queues) Close() { _ = q.rdb.Close() }

// Forecast estimates the times at which the waiting and pending jobs would run.
func (q *Queues) Forecast(ctx context.Context, opts forecast.Options) (*forecast.Forecast, error) {
	var pending stats.Pending
	var err error
	if q.Rules.RuleFor != nil {
		opts.Limits = q.Rules.Limits
		pending, err = stats.ReadPending(ctx, q.rdb, q.Limiter, q.Rules.ServedQueues, q.Rules.RuleFor)
	} else {
		var sample *stats.BacklogSample
		if sample, err = stats.ReadBacklogSample(ctx, q.rdb, q.scope); err == nil {
			pending, err = stats.SampledPending(ctx, q.rdb, sample)
		}
	}
	if err != nil {
		return nil, err
	}
	return stats.Forecast(ctx, q.Limiter, q.rdb, pending, opts)
}

// Names returns the names of all asynq queues, or only of the given queue and its shards. It fails
// if the given queue does not exist.
func (q *Queues) Names(ctx context.Context, queue string) ([]string, error) {
	if queue == "" {
		names, err := q.DB.Queues(ctx)
		return slices.DeleteFunc(names, func(name string) bool { return q.part != nil && q.Sharded.ShardNamed(name) != *q.part }), err
	}
	names, err := q.Inspector.Queues()
	if err != nil {
		return nil, err
	}
	own := q.Sharded.Names(queue)
	own = slices.DeleteFunc(own, func(name string) bool { return !slices.Contains(names, name) })
	if len(own) == 0 {
		return nil, fmt.Errorf("there is no queue %s", queue)
	}
	return own, nil
}

// ReadQueue reads one queue with its shards. It fails if the queue does not exist.
func (q *Queues) ReadQueue(ctx context.Context, queue string) (QueueStatus, error) {
	queues, err := q.readQueues(ctx, queue, false, nil)
	if err == nil && len(queues) == 0 {
		err = fmt.Errorf("queue %s: %w", queue, asynq.ErrQueueNotFound)
	}
	if err != nil {
		return QueueStatus{}, err
	}
	return queues[0], nil
}

// SetPaused pauses a queue, so that workers take no jobs from it, or ends the pause. It fails if
// the queue is in that state already.
func (q *Queues) SetPaused(ctx context.Context, queue string, paused bool) error {
	names, err := q.Names(ctx, queue)
	if err != nil {
		return err
	}
	set, done, already := q.Inspector.UnpauseQueue, "resumed", "is not paused"
	if paused {
		set, done, already = q.Inspector.PauseQueue, "paused", "is paused already"
	}
	if queue != "" && len(q.Sharded.Names(queue)) > 1 {
		names = q.Sharded.Names(queue) // also shards that had no job yet
	}
	changed := false
	for _, name := range names {
		before, err := q.rdb.Exists(ctx, asynqdb.Key(name, asynqdb.Paused)).Result()
		if err == nil && (before > 0) != paused {
			changed, err = true, set(name)
		}
		if err != nil {
			return err
		}
	}
	if !changed {
		return fmt.Errorf("queue %s %s", queue, already)
	}
	return q.note(ctx, throttle.Change{What: done, Job: throttle.JobID{Queue: queue}})
}

// Remove deletes a queue with all its jobs, and returns the number of jobs. It fails if a job runs,
// or if a job is enqueued during the call.
func (q *Queues) Remove(ctx context.Context, queue string) (jobs int, err error) {
	names, err := q.Names(ctx, queue)
	for i := 0; err == nil && i < len(names); i++ {
		var n int
		n, err = q.remove(ctx, names[i])
		jobs += n
	}
	return jobs, err
}

func (q *Queues) remove(ctx context.Context, queue string) (jobs int, err error) {
	info, err := q.ReadQueue(ctx, queue)
	if err != nil {
		return 0, err
	}
	if info.Active > 0 {
		return 0, fmt.Errorf("queue %s has %d running: cancel them, or wait until they end", queue, info.Active)
	}
	all := Filter{Queue: queue}
	ids, err := q.Find(ctx, Delete, all, math.MaxInt)
	if err != nil {
		return 0, err
	}
	jobs, err = q.Apply(ctx, Delete, all, ids)
	if err == nil && info.Paused {
		err = q.Inspector.UnpauseQueue(queue) // asynq keeps the pause of a deleted queue
	}
	if err == nil {
		err = q.Inspector.DeleteQueue(queue, false)
	}
	if err == nil {
		err = q.rdb.Del(ctx, asynqdb.Key(queue, asynqdb.Marker)).Err()
	}
	if err == nil {
		err = q.note(ctx, throttle.Change{What: Delete.Done, Job: throttle.JobID{Queue: queue}})
	}
	return jobs, err
}

func (q *Queues) note(ctx context.Context, c throttle.Change) error {
	return q.Limiter.Internals().Note(context.WithoutCancel(ctx), c)
}
