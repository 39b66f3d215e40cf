package inspect

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/throttle"
)

// Pause has no worker take jobs of a queue until Resume. Both note it in the changelog.
func (q *Queues) Pause(ctx context.Context, queue string) error {
	return q.toggle(ctx, queue, true)
}

// Resume ends a pause.
func (q *Queues) Resume(ctx context.Context, queue string) error {
	return q.toggle(ctx, queue, false)
}

func (q *Queues) toggle(ctx context.Context, queue string, pause bool) error {
	if _, err := q.Names(ctx, queue); err != nil {
		return err
	}
	info, err := q.Inspector.GetQueueInfo(queue)
	if err != nil {
		return err
	}
	set, done, already := q.Inspector.UnpauseQueue, "resumed", "is not paused"
	if pause {
		set, done, already = q.Inspector.PauseQueue, "paused", "is paused already"
	}
	if info.Paused == pause {
		return fmt.Errorf("queue %s %s", queue, already)
	}
	if err := set(queue); err != nil {
		return err
	}
	return q.note(ctx, queue, done, 0)
}

func (q *Queues) note(ctx context.Context, queue, done string, jobs int) error {
	return q.Limiter.Internals().Note(context.WithoutCancel(ctx), throttle.Change{What: done, Jobs: jobs, Job: throttle.JobID{Queue: queue}})
}

// Purged are the states of the jobs that Purge can delete.
var PurgeableStates = []string{Waiting, "pending", "retry", "scheduled", "archived", "completed"}

// Purge deletes all jobs of a queue that are in these states, counts them, and notes it in
// the changelog. Those that are called count as waiting, and as pending where they are back
// in the queue. Where asynq has only such jobs in a set, that is one step of Redis.
func (q *Queues) Purge(ctx context.Context, queue string, states ...string) (n int, err error) {
	defer func() {
		if n > 0 {
			err = errors.Join(err, q.note(ctx, queue, Delete.Done, n))
		}
	}()
	for _, state := range states {
		var deleted int
		switch state {
		case "pending":
			deleted, err = q.purgePending(ctx, queue)
		case "scheduled":
			deleted, err = q.Inspector.DeleteAllScheduledTasks(queue)
		case "archived":
			deleted, err = q.Inspector.DeleteAllArchivedTasks(queue)
		case "completed":
			deleted, err = q.Inspector.DeleteAllCompletedTasks(queue)
		case "retry":
			deleted, err = q.deleteAll(ctx, Filter{Queue: queue, States: []string{"retry"}})
		case Waiting:
			deleted, err = q.deleteAll(ctx, Filter{Queue: queue, States: []string{Waiting, Granted}})
		}
		if n += deleted; err != nil {
			return n, err
		}
	}
	return n, q.forgetGone(ctx, queue)
}

// purgePending deletes all pending jobs. asynq would do so in one step, and leave the locks
// of those that are unique: these go one by one before.
func (q *Queues) purgePending(ctx context.Context, queue string) (n int, err error) {
	unique, err := q.DB.PendingWithLock(ctx, queue)
	if err != nil {
		return 0, err
	}
	for _, id := range unique {
		if err := ctx.Err(); err != nil {
			return n, err
		}
		if err := q.Inspector.DeleteTask(queue, id); err == nil {
			n++
		} else if job, looked := q.Inspector.GetTaskInfo(queue, id); looked == nil && job.State == asynq.TaskStatePending {
			return n, err // else it has begun meanwhile, or is gone
		}
	}
	rest, err := q.Inspector.DeleteAllPendingTasks(queue)
	return n + rest, err
}

func (q *Queues) deleteAll(ctx context.Context, f Filter) (int, error) {
	jobs, err := q.Find(ctx, Delete, f, math.MaxInt)
	if err != nil {
		return 0, err
	}
	return q.do(ctx, Delete, f, jobs)
}

// forgetGone has the limiter forget the jobs of a queue that are there no more.
func (q *Queues) forgetGone(ctx context.Context, queue string) error {
	waiting, err := q.waiting(ctx, queue)
	if err != nil {
		return err
	}
	for some := range slices.Chunk(waiting[queue], pageSize) {
		ids := make([]string, len(some))
		for i, id := range some {
			ids[i] = id.ID
		}
		states, err := q.DB.States(ctx, queue, ids...)
		if err != nil {
			return err
		}
		var gone []throttle.JobID
		for i, state := range states {
			if state == "" {
				gone = append(gone, some[i])
			}
		}
		if _, err := q.Limiter.Forget(ctx, gone...); err != nil {
			return err
		}
	}
	return nil
}

// Remove deletes a queue with all its jobs, counts them, and notes it in the changelog. It
// fails if one runs, or if one comes meanwhile.
func (q *Queues) Remove(ctx context.Context, queue string) (jobs int, err error) {
	info, err := q.ReadQueue(ctx, queue)
	if err != nil {
		return 0, err
	}
	if info.Active > 0 {
		return 0, fmt.Errorf("queue %s has %d running: cancel what runs, or wait for its end", queue, info.Active)
	}
	jobs, err = q.Purge(ctx, queue, PurgeableStates...)
	if err == nil && info.Paused {
		err = q.Inspector.UnpauseQueue(queue) // else the next of its name would be paused
	}
	if err == nil {
		err = q.Inspector.DeleteQueue(queue, false)
	}
	if err == nil {
		err = q.rdb.Del(ctx, asynqdb.Key(queue, asynqdb.Bell)).Err() // where its servers wait
	}
	if err == nil {
		err = q.note(ctx, queue, Delete.Done, 0)
	}
	return jobs, err
}
