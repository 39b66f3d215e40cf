package asynqdb

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/redishealth"
)

// ErrLayout means that asynq keeps its jobs elsewhere than we look.
var ErrLayout = errors.New("this asynq keeps its jobs in another way than headgate knows")

// CheckQueue begins the names of the queues in which processes check that.
const CheckQueue = "headgate-check-"

// Check takes a job of its own in a queue of its own, puts it back and promotes it, and
// asks asynq each time where the job is: another version may keep jobs elsewhere. An error that
// wraps ErrLayout means that it does, or that somebody took the job away meanwhile; any other
// says nothing about that.
func (db DB) Check(ctx context.Context) (err error) {
	queue := CheckQueue + rand.Text()
	client, tasks := asynq.NewClientFromRedisClient(db.Redis), asynq.NewInspectorFromRedisClient(db.Redis)
	info, err := client.EnqueueContext(ctx, asynq.NewTask("check", nil), asynq.Queue(queue))
	defer func() {
		if gone := tasks.DeleteQueue(queue, true); info != nil { // else it may be there, or not
			err = errors.Join(err, gone, db.Redis.Del(ctx, Key(queue, Bell)).Err())
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
	if err := db.Deny(ctx, queue, time.Now().Add(time.Hour)); redishealth.Of(err) == redishealth.None && err != nil {
		return fmt.Errorf("%w: %w", ErrLayout, err)
	} else if err != nil {
		return err
	}
	if err := want(asynq.TaskStateRetry); err != nil {
		return err
	}
	if _, err := db.Promote(ctx, queue, info.ID); err != nil {
		return err
	}
	return want(asynq.TaskStatePending)
}

// Deny does to the next job of a queue what a dequeue and then a denial do, in a scope named
// like the queue.
func (db DB) Deny(ctx context.Context, queue string, until time.Time) error {
	ctx = context.WithoutCancel(ctx) // asynq deletes no queue of which a job is active
	d := NewDequeue(queue, time.Now().Add(LeaseTime).Unix(), false)
	taken, err := db.Dequeue(ctx, d, 1)
	if err != nil {
		return err
	}
	if len(taken) == 0 {
		return fmt.Errorf("%w: no job is pending", ErrLayout)
	}
	j := &PutBack{ID: taken[0].ID, Msg: []byte(taken[0].Msg), At: until, Unique: true, Scope: queue, Lease: d.Lease()}
	if db.PutBack(ctx, queue, j); errors.Is(j.Err, ErrNotActive) {
		return fmt.Errorf("%w: no job is active", ErrLayout)
	}
	return j.Err
}
