package asynqdb

import (
	"context"
	"errors"
	"time"
)

// PutBack is an active job that goes into the retry set without a failure.
type PutBack struct {
	ID     string
	Msg    []byte
	At     time.Time // when asynq itself brings it back
	Unique bool      // whether it has a Unique lock
	Scope  string    // in which it was denied, so that it may be promoted before; or none
	Lease  LeaseID   // under which it must be active
	Err    error     // set by PutBack: why it was not
}

// ErrNotActive is what asynq's own scripts say of a job that is not active.
var ErrNotActive = errors.New("NOT FOUND")

// PutBack puts jobs of one queue back in one script, each on its last attempt too.
func (db DB) PutBack(ctx context.Context, queue string, jobs ...*PutBack) {
	keys, args := []string{Key(queue, Active), Key(queue, Lease), Key(queue, Retry)}, []any(nil)
	for _, j := range jobs {
		keys = append(keys, Hash(queue, j.ID))
		args = append(args, j.ID, j.Msg, unixCeil(j.At), lockSeconds(j.Unique, j.At), j.Scope, j.Lease.Dequeue, j.Lease.ended())
	}
	done, err := putBackScript.Run(ctx, db.Redis, keys, args...).Int64Slice()
	for i, j := range jobs {
		if j.Err = err; err == nil && done[i] == 0 {
			j.Err = ErrNotActive
		}
	}
}

// Forgive puts a job back whose worker died, to run again at once, unless that was forgiven as
// often already: then it does nothing. The job must be active under that lease.
func (db DB) Forgive(ctx context.Context, queue, id string, msg []byte, unique bool, most int, lease LeaseID) (forgiven bool, err error) {
	now := time.Now()
	args := []any{id, msg, now.Unix(), lockSeconds(unique, now), most, lease.Dequeue, lease.ended()}
	return crashScript.Run(ctx, db.Redis, []string{Hash(queue, id), Key(queue, Active), Key(queue, Lease), Key(queue, Retry)}, args...).Bool()
}

// Promote moves denied jobs of a queue to its head, behind those promoted before; the first
// to run comes first. It returns what became of each, in the words of
// lua/asynq/promote.lua. asynq's Inspector could run a job, too, but would put it last, and
// runs archived and completed ones again.
func (db DB) Promote(ctx context.Context, queue string, ids ...string) ([]string, error) {
	args := []any{Hash(queue, ""), time.Now().UnixNano()}
	for _, id := range ids {
		args = append(args, id)
	}
	return promoteScript.Run(ctx, db.Redis, []string{Key(queue, Pending), Key(queue, Retry), Key(queue, Bell)}, args...).StringSlice()
}

// Postpone sets anew when asynq itself brings jobs of a queue back that wait denied still, and
// has their Unique locks outlast that. Others stay as they are: they may have been called
// since the caller looked.
func (db DB) Postpone(ctx context.Context, queue string, until map[string]time.Time) error {
	if len(until) == 0 {
		return nil
	}
	args := []any{Hash(queue, ""), time.Now().Unix(), int64(LockMargin / time.Second)}
	for id, at := range until {
		args = append(args, id, unixCeil(at))
	}
	return postponeScript.Run(ctx, db.Redis, []string{Key(queue, Retry)}, args...).Err()
}

// unixCeil is a moment as asynq's scores are: whole seconds, and not before it.
// asynq itself rounds down, so that a job comes back up to a second early.
func unixCeil(t time.Time) int64 { return t.Add(time.Second - 1).Unix() }

// LockMargin is how much longer than the wait a job's Unique lock holds, so
// that it does not end while the job comes back and runs.
const LockMargin = time.Minute

// lockSeconds is how long the Unique lock, if there is one, of a job must hold that comes
// back at t.
func lockSeconds(unique bool, t time.Time) int64 {
	if !unique {
		return 0
	}
	return int64((time.Until(t) + LockMargin) / time.Second)
}
