package asynqdb

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/redishealth"
	"github.com/headgate/headgate/throttle"
)

// ErrLayout means that asynq's Redis layout differs from the one this package expects.
var ErrLayout = errors.New("this version of asynq stores its jobs in a way that headgate does not know")

// CheckQueue is the prefix of the names of the queues that Check uses.
const CheckQueue = "headgate-check-"

// Check tests whether asynq stores its jobs as this package expects. It enqueues a job in a queue
// of its own, puts it back and promotes it. After each step it compares the job's state in asynq's
// Inspector with the expected state. An error that wraps ErrLayout means that a state differs or
// the job is gone. Any other error means that Check did not finish.
func (db DB) Check(ctx context.Context) (err error) {
	queue := CheckQueue + rand.Text()
	client, tasks := asynq.NewClientFromRedisClient(db.Redis), asynq.NewInspectorFromRedisClient(db.Redis)
	info, err := client.EnqueueContext(ctx, asynq.NewTask("check", nil), asynq.Queue(queue))
	defer func() {
		if gone := tasks.DeleteQueue(queue, true); info != nil { // without info, the queue may not exist
			err = errors.Join(err, gone, db.Redis.Del(ctx, Key(queue, Marker)).Err())
		}
		if errors.Is(err, asynq.ErrQueueNotFound) || errors.Is(err, asynq.ErrTaskNotFound) {
			err = fmt.Errorf("%w: %w", ErrLayout, err)
		}
	}()
	if err != nil {
		return err
	}
	want := func(state asynq.TaskState) error {
		now, err := tasks.GetTaskInfo(queue, info.ID)
		if err == nil && now.State != state {
			err = fmt.Errorf("%w: a job that should be %s is %s", ErrLayout, state, now.State)
		}
		return err
	}
	if err := db.Deny(ctx, queue, time.Now().Add(time.Hour)); redishealth.ProblemOf(err) == redishealth.None && err != nil {
		return fmt.Errorf("%w: %w", ErrLayout, err)
	} else if err != nil {
		return err
	}
	if err := want(asynq.TaskStateRetry); err != nil {
		return err
	}
	if _, err := db.Promote(ctx, throttle.JobID{Queue: queue, ID: info.ID}); err != nil {
		return err
	}
	return want(asynq.TaskStatePending)
}

// Deny dequeues one job and puts it back until the given time, as a job that was denied in a scope
// with the queue's name. Only Check and tests use Deny.
func (db DB) Deny(ctx context.Context, queue string, until time.Time) error {
	ctx = context.WithoutCancel(ctx) // if the job stayed active, asynq could not delete the queue
	taken, err := db.Dequeue(ctx, NewDequeue(queue, time.Now().Add(LeaseTime).Unix(), false), 1)
	if err != nil {
		return err
	}
	if len(taken) == 0 {
		return fmt.Errorf("%w: no job is pending", ErrLayout)
	}
	j := &PutBack{Job: taken[0], At: until, Scope: queue}
	if db.PutBack(ctx, queue, j); errors.Is(j.Err, ErrNotActive) {
		return fmt.Errorf("%w: no job is active", ErrLayout)
	}
	return j.Err
}
