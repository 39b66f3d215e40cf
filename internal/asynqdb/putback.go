package asynqdb

import (
	"context"
	"errors"
	"time"
)

// A PutBack describes one active job that [DB.PutBack] moves to the retry set. asynq counts no
// failure for it.
type PutBack struct {
	ID     string
	Msg    []byte
	At     time.Time // retry time: asynq's forwarder makes the job pending then
	Unique bool      // whether the job has a Unique lock
	Scope  string    // the scope that denied the job and can promote it before At; empty if none did
	Lease  LeaseID   // the lease that the active job must have
	Err    error     // result of DB.PutBack: why the job was not put back, or nil
}

// ErrNotActive is the error of asynq's own scripts for a job that is not active.
var ErrNotActive = errors.New("NOT FOUND")

// PutBack moves active jobs of a queue to the retry set, even if they have no retries left. It sets
// Err of each job.
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

// Forgive moves a job whose worker crashed to the retry set, due now, without counting a failure.
// The job must be active under the given lease and have fewer than maxCrashes forgiven crashes. If
// not, Forgive changes nothing and returns false. unique says whether the job has a Unique lock.
func (db DB) Forgive(ctx context.Context, queue, id string, msg []byte, unique bool, maxCrashes int, lease LeaseID) (forgiven bool, err error) {
	now := time.Now()
	args := []any{id, msg, now.Unix(), lockSeconds(unique, now), maxCrashes, lease.Dequeue, lease.ended()}
	return crashScript.Run(ctx, db.Redis, []string{Hash(queue, id), Key(queue, Active), Key(queue, Lease), Key(queue, Retry)}, args...).Bool()
}

// Promote moves denied jobs of a queue to its head, behind jobs that earlier calls have promoted.
// The jobs run in the order of ids. Promote returns a result for each job, in that order:
// lua/asynq/promote.lua lists the results. asynq's Inspector.RunTask is not suitable, because it
// appends the job at the end and also runs archived and completed tasks.
func (db DB) Promote(ctx context.Context, queue string, ids ...string) ([]string, error) {
	args := []any{Hash(queue, ""), time.Now().UnixNano()}
	for _, id := range ids {
		args = append(args, id)
	}
	return promoteScript.Run(ctx, db.Redis, []string{Key(queue, Pending), Key(queue, Retry), Key(queue, Marker)}, args...).StringSlice()
}

// Postpone changes the retry times of denied jobs, and extends their Unique locks accordingly.
// until has the new times by job ID. Postpone does not change jobs that were granted meanwhile.
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

// unixCeil returns t in Unix seconds, rounded up. asynq itself rounds down, so jobs could run up to
// a second early.
func unixCeil(t time.Time) int64 { return t.Add(time.Second - 1).Unix() }

// LockMargin is the time by which a job's Unique lock outlasts its wait, so that the lock does not
// end while the job returns and runs.
const LockMargin = time.Minute

// lockSeconds returns the seconds for which the Unique lock of a job that is retried at t must
// hold, or 0 if the job has no lock.
func lockSeconds(unique bool, t time.Time) int64 {
	if !unique {
		return 0
	}
	return int64((time.Until(t) + LockMargin) / time.Second)
}
