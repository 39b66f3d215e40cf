// Package inspect tells what becomes of jobs: where they are, how many of them, and how the
// limits that they wait for stand.
package inspect

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/history"
	"github.com/headgate/headgate/lua"
	"github.com/headgate/headgate/scheduler/lanes"
	"github.com/headgate/headgate/throttle"
)

// Queues is asynq's view of Redis, and the limiter's of the jobs in it.
type Queues struct {
	Inspector *asynq.Inspector
	DB        asynqdb.DB // what asynq keeps and does not tell
	Limiter   *lanes.Lanes

	rdb   redis.UniversalClient
	scope string
	judge Judge
}

// New looks at the queues of a Redis, and at the limiter of a scope there.
func New(rdb redis.UniversalClient, limiter *lanes.Lanes, scope string) *Queues {
	return &Queues{Inspector: asynq.NewInspectorFromRedisClient(rdb), DB: asynqdb.New(rdb), Limiter: limiter, rdb: rdb, scope: scope}
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
		return q.DB.Queues(ctx)
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

// QueueInfo is what asynq knows of a queue, and how many of its jobs wait for permits or
// are called. Those do not count as jobs in retry.
type QueueInfo struct {
	*asynq.QueueInfo
	Waiting int
}

// Infos tells of the queue that is named, or of all. A queue that was removed meanwhile is
// left out. Nil for how many jobs of each queue wait has them counted.
func (q *Queues) Infos(ctx context.Context, queue string, waits func(queue string) int) (infos []QueueInfo, err error) {
	if waits == nil {
		waiting, err := q.waiting(ctx, queue)
		if err != nil {
			return nil, err
		}
		waits = func(name string) int { return len(waiting[name]) }
	}
	names, err := q.Names(ctx, queue)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		info, err := q.Inspector.GetQueueInfo(name)
		if errors.Is(err, asynq.ErrQueueNotFound) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("queue %s: %w", name, err)
		}
		n := waits(name)
		info.Retry = max(0, info.Retry-n)
		infos = append(infos, QueueInfo{info, n})
	}
	return infos, nil
}

// Info is Infos of one queue. It fails if there is none of that name.
func (q *Queues) Info(ctx context.Context, queue string) (QueueInfo, error) {
	infos, err := q.Infos(ctx, queue, nil)
	if err == nil && len(infos) == 0 {
		err = fmt.Errorf("queue %s: %w", queue, asynq.ErrQueueNotFound)
	}
	if err != nil {
		return QueueInfo{}, err
	}
	return infos[0], nil
}

// In is how many of its jobs are in some states. Those that are called are among those that
// wait.
func (i QueueInfo) In(states ...string) (n int) {
	for state, of := range map[string]int{
		Waiting: i.Waiting, "pending": i.Pending, "active": i.Active, "retry": i.Retry,
		"scheduled": i.Scheduled, "archived": i.Archived, "completed": i.Completed,
	} {
		if slices.Contains(states, state) {
			n += of
		}
	}
	return n
}

// waiting lists who waits for permits or is called, by queue; of the queue that is named,
// or of all. It reads all of them, a part at a time.
func (q *Queues) waiting(ctx context.Context, queue string) (map[string][]throttle.JobID, error) {
	told := map[string]bool{} // a scan may tell one twice
	waiting := map[string][]throttle.JobID{}
	scan := q.rdb.HScan(ctx, lua.Prefix(q.scope)+"jobs", 0, "*", 1000).Iterator()
	for scan.Next(ctx) {
		name := scan.Val()
		of, id, ok := strings.Cut(name, "\n")
		if ok && !told[name] && (queue == "" || of == queue) {
			told[name] = true
			waiting[of] = append(waiting[of], throttle.JobID{Queue: of, ID: id})
		}
		scan.Next(ctx) // the record
	}
	return waiting, scan.Err()
}

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
	return q.Limiter.Note(context.WithoutCancel(ctx), throttle.Change{What: done, Jobs: jobs, Job: throttle.JobID{Queue: queue}})
}

// Purged are the states of the jobs that Purge can delete.
var Purged = []string{Waiting, "pending", "retry", "scheduled", "archived", "completed"}

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
			deleted, err = q.deleteAll(ctx, Filter{Queue: queue, States: []string{Waiting, Called}})
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
	info, err := q.Info(ctx, queue)
	if err != nil {
		return 0, err
	}
	if info.Active > 0 {
		return 0, fmt.Errorf("queue %s has %d running: cancel what runs, or wait for its end", queue, info.Active)
	}
	jobs, err = q.Purge(ctx, queue, Purged...)
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
