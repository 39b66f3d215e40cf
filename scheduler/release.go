package scheduler

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

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

	fateUnknown = "" // Redis did not say
)

// release moves the jobs, the first to run first, and returns what became of
// each: one round trip per queue.
func (r releaser) release(ctx context.Context, jobs []throttle.Called) (fates []string, err error) {
	byQueue := map[string][]int{}
	for i, job := range jobs {
		byQueue[job.Queue] = append(byQueue[job.Queue], i)
	}
	fates = make([]string, len(jobs))
	for queue, indexes := range byQueue {
		prefix := "asynq:{" + queue + "}:"
		keys := []string{prefix + "pending", prefix + "retry", prefix + "scheduled"}
		args := []any{prefix + "t:", time.Now().UnixNano()}
		for _, i := range indexes {
			args = append(args, jobs[i].ID)
		}
		reply, err := lua.Release.Run(ctx, r.rdb, keys, args...).StringSlice()
		if err != nil {
			return fates, err
		}
		for k, i := range indexes {
			fates[i] = reply[k]
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
	if fates[0] != fateMoved || info.State != asynq.TaskStatePending {
		return fmt.Errorf("%w: a job was %s and is %s", errLayout, fates[0], info.State)
	}
	return nil
}
