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

// PurgeableStates are the states of jobs that Purge can delete.
var PurgeableStates = []string{Waiting, "pending", "retry", "scheduled", "archived", "completed"}

// Purge deletes all jobs of a queue in these states, and returns their number. Granted jobs count as
// waiting, or as pending after asynq has moved them to the queue.
func (q *Queues) Purge(ctx context.Context, queue string, states ...string) (n int, err error) {
	defer func() {
		if n > 0 {
			err = errors.Join(err, q.note(ctx, throttle.Change{What: Delete.Done, Jobs: n, Job: throttle.JobID{Queue: queue}}))
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
	return n, q.forgetDeleted(ctx, queue)
}

// purgePending deletes unique jobs one by one, because asynq's bulk deletion keeps their locks.
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
		} else if job, errRead := q.Inspector.GetTaskInfo(queue, id); errRead == nil && job.State == asynq.TaskStatePending {
			return n, err // otherwise it has started, or is gone
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
	return q.applyAll(ctx, Delete, f, jobs)
}

// forgetDeleted makes the limiter forget the jobs of a queue that are no longer in asynq.
func (q *Queues) forgetDeleted(ctx context.Context, queue string) error {
	waiting, err := q.waiting(ctx, queue)
	if err != nil {
		return err
	}
	for jobs := range slices.Chunk(waiting[queue], pageSize) {
		ids := make([]string, len(jobs))
		for i, job := range jobs {
			ids[i] = job.ID
		}
		states, err := q.DB.States(ctx, queue, ids...)
		if err != nil {
			return err
		}
		var deleted []throttle.JobID
		for i, state := range states {
			if state == "" {
				deleted = append(deleted, jobs[i])
			}
		}
		if _, err := q.Limiter.Forget(ctx, deleted...); err != nil {
			return err
		}
	}
	return nil
}

// Remove deletes a queue with all its jobs, and returns the number of jobs. It fails if a job runs,
// or if a job is enqueued during the call.
func (q *Queues) Remove(ctx context.Context, queue string) (jobs int, err error) {
	info, err := q.ReadQueue(ctx, queue)
	if err != nil {
		return 0, err
	}
	if info.Active > 0 {
		return 0, fmt.Errorf("queue %s has %d running: cancel them, or wait until they end", queue, info.Active)
	}
	jobs, err = q.Purge(ctx, queue, PurgeableStates...)
	if err == nil && info.Paused {
		err = q.Inspector.UnpauseQueue(queue) // or a new queue of this name would be paused
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
