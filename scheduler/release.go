package scheduler

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"time"

	"github.com/headgate/headgate/lua"
	"github.com/headgate/headgate/throttle"
)

// releaser moves called jobs to the head of asynq's pending lists. It is the
// only code that knows where asynq keeps them.
type releaser struct{ rdb redis.UniversalClient }

// The fates of a called job, as lua/release.lua names them.
const (
	fateMoved  = "moved"
	fateActive = "active" // its handler has not returned yet: try again soon
	fateDone   = "done"   // archived or completed meanwhile
	fateGone   = "gone"   // deleted meanwhile
)

// release moves the jobs, the first to run first, and returns what became of
// each: one round trip per queue.
func (r releaser) release(ctx context.Context, jobs []throttle.Called) (map[throttle.Called]string, error) {
	byQueue := map[string][]any{}
	for _, job := range jobs {
		byQueue[job.Queue] = append(byQueue[job.Queue], job.ID)
	}
	fates := make(map[throttle.Called]string, len(jobs))
	for queue, ids := range byQueue {
		prefix := "asynq:{" + queue + "}:"
		keys := []string{prefix + "pending", prefix + "retry", prefix + "scheduled"}
		reply, err := lua.Release.Run(ctx, r.rdb, keys, append([]any{prefix + "t:"}, ids...)...).StringSlice()
		if err != nil {
			return fates, err
		}
		for i, fate := range reply {
			fates[throttle.Called{Queue: queue, ID: ids[i].(string)}] = fate
		}
	}
	return fates, nil
}

// errLayout means that asynq keeps its jobs elsewhere than release looks.
var errLayout = errors.New("this asynq keeps its jobs in another way than headgate knows")

// check releases a job of its own in a queue of its own and asks asynq where
// the job is then.
func (r releaser) check(ctx context.Context) (err error) {
	queue := "headgate-check-" + uuid.NewString()
	client, tasks := asynq.NewClientFromRedisClient(r.rdb), asynq.NewInspectorFromRedisClient(r.rdb)
	info, err := client.EnqueueContext(ctx, asynq.NewTask("check", nil), asynq.Queue(queue), asynq.ProcessIn(time.Hour))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tasks.DeleteQueue(queue, true)) }()
	job := throttle.Called{Queue: queue, ID: info.ID}
	fates, err := r.release(ctx, []throttle.Called{job})
	if err != nil {
		return err
	}
	if info, err = tasks.GetTaskInfo(queue, info.ID); err != nil {
		return err
	}
	if fates[job] != fateMoved || info.State != asynq.TaskStatePending {
		return fmt.Errorf("%w: a job was %s and is %s", errLayout, fates[job], info.State)
	}
	return nil
}
