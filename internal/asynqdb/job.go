package asynqdb

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/script"
	"github.com/headgate/headgate/throttle"
)

// A Job is a job that a Dequeue took, with the lease under which it is active. Scripts change
// nothing if the job has another lease by now, because another worker has the job then.
type Job struct {
	throttle.JobID
	Msg  []byte // the message as asynq stores it
	Back bool   // whether the job was put back since it was enqueued
	// Dequeue is the name of the Dequeue that took the job. If that is not known, Ended is the Unix
	// second at or before which the lease ended. Without both, any lease matches.
	Dequeue string
	Ended   int64
}

// A Dequeue identifies one call that takes jobs from a queue. If Redis's reply is lost, sending the
// same Dequeue again returns the jobs that it took.
type Dequeue struct {
	Queue string
	Name  string    // unique: see NewDequeue
	Ends  time.Time // when the jobs' leases end, in whole seconds
	Woken bool      // whether a marker of the queue was consumed for this call
	// Rest is the length of the rest that begins with this Dequeue. During a rest, a Dequeue with a
	// positive Rest takes only jobs that were put back, and begins no other rest. A Dequeue with a
	// Rest of 0 takes any job, also during a rest.
	Rest time.Duration
	// MaxBytes bounds the messages of the jobs, which come in one reply. A Dequeue returns one job
	// whatever its size. Each repeat after the first halves the bound, down to MinReply, because the
	// replies before may have been too large for the connection. The first repeat may have another
	// cause, such as a script that Redis did not know. Zero means MaxReply.
	MaxBytes int
	// Left reports whether the last DB.Dequeue left jobs because of the bound, and Bytes is the size
	// of the messages that it returned.
	Left  bool
	Bytes int

	sent script.Sent
}

// MaxReply is the most bytes of jobs that one reply of Redis contains, unless a single job has more.
// A reply must arrive within the client's ReadTimeout. MinReply is the least bound: a connection on
// which it takes too long is of no use.
const (
	MaxReply = 8 << 20
	MinReply = 64 << 10
)

// Bound returns the bound of bytes for the present or last sending.
func (d *Dequeue) Bound() int {
	return max(MinReply, cmp.Or(d.MaxBytes, MaxReply)>>max(0, d.sent.Times()-2))
}

// sendingBound is the argument with the bound of the present sending.
type sendingBound struct{ *Dequeue }

// MarshalBinary implements encoding.BinaryMarshaler.
func (b sendingBound) MarshalBinary() ([]byte, error) {
	return strconv.AppendInt(nil, int64(b.Bound()), 10), nil
}

// NoNew is the Rest of a Dequeue that takes only jobs that were put back.
const NoNew = -time.Millisecond

// NewDequeue returns a Dequeue with a unique name. Redis keeps the name in the field pending_since
// of each job, which asynq may read as a time in nanoseconds. So the name is a random time in the
// 50 ms before the present one. JustTaken reads it, too.
func NewDequeue(queue string, ends int64, woken bool) *Dequeue {
	name := strconv.FormatInt(time.Now().UnixNano()-rand.Int64N(50e6), 10)
	return &Dequeue{Queue: queue, Name: name, Ends: time.Unix(ends, 0), Woken: woken}
}

var dequeueScript = script.New("asynq/dequeue")

// Dequeue takes up to n jobs from the head of the queue, or returns the jobs that the same call
// took before. The result is in the order in which the jobs are to run.
func (db DB) Dequeue(ctx context.Context, d *Dequeue, n int) ([]Job, error) {
	q := d.Queue
	keys := []string{Key(q, Pending), Key(q, Paused), Key(q, Active), Key(q, Lease), Key(q, Marker), Key(q, Pass)}
	found, err := dequeueScript.Run(ctx, db.Redis, keys, d.Ends.Unix(), Hash(q, ""), n, d.Name, &d.sent, d.Woken, d.Rest.Milliseconds(), sendingBound{d}).StringSlice()
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, err
	}
	d.Bytes = 0
	d.Left = len(found)%3 == 1
	if d.Left {
		found = found[:len(found)-1]
	}
	jobs := make([]Job, 0, len(found)/3)
	for f := range slices.Chunk(found, 3) {
		d.Bytes += len(f[1])
		jobs = append(jobs, Job{JobID: throttle.JobID{Queue: q, ID: f[0]}, Msg: []byte(f[1]), Back: f[2] != "", Dequeue: d.Name})
	}
	return jobs, nil
}

var giveBackScript = script.New("asynq/give_back")

// GiveBack returns jobs of one Dequeue to the head of their queue. The jobs then run in the given
// order. GiveBack also stores the Msg of each job with Back, because Msg has the job's place in its
// lane.
func (db DB) GiveBack(ctx context.Context, jobs ...Job) error {
	q := jobs[0].Queue
	args := []any{Hash(q, ""), jobs[0].Dequeue}
	for _, j := range jobs {
		if args = append(args, j.ID, ""); j.Back {
			args[len(args)-1] = j.Msg
		}
	}
	return giveBackScript.Run(ctx, db.Redis, []string{Key(q, Pending), Key(q, Active), Key(q, Lease), Key(q, Marker)}, args...).Err()
}

// A PutBack is an active job that [DB.PutBack] moves to the retry set. asynq counts no failure for
// it.
type PutBack struct {
	Job
	At    time.Time // retry time: asynq's forwarder makes the job pending then
	Scope string    // the scope that denied the job and can promote it before At; empty if none did
	Err   error     // result of DB.PutBack: why the job was not put back, or nil
}

// ErrNotActive is the error for a job that is not active or has another lease. It is an error of
// Redis, as that of asynq's scripts, and no sign that Redis cannot be used.
var ErrNotActive error = scriptError("NOT FOUND")

// scriptError is the error of a script.
type scriptError string

// Error implements error.
func (e scriptError) Error() string { return string(e) }

// RedisError implements redis.Error.
func (scriptError) RedisError() {}

var putBackScript = script.New("asynq/put_back")

// PutBack moves active jobs of a queue to the retry set, even if they have no retries left. It sets
// Err of each job.
func (db DB) PutBack(ctx context.Context, queue string, jobs ...*PutBack) {
	keys, args := []string{Key(queue, Active), Key(queue, Lease), Key(queue, Retry)}, []any(nil)
	for _, j := range jobs {
		keys = append(keys, Hash(queue, j.ID))
		args = append(args, j.ID, j.Msg, unixCeil(j.At), int64((time.Until(j.At)+LockMargin)/time.Second), j.Scope, j.Dequeue, j.Ended)
	}
	done, err := putBackScript.Run(ctx, db.Redis, keys, args...).Int64Slice()
	for i, j := range jobs {
		if j.Err = err; err == nil && done[i] == 0 {
			j.Err = ErrNotActive
		}
	}
}

var crashScript = script.New("asynq/crash")

// Forgive moves an active job whose worker crashed to the retry set, due now, without counting a
// failure. If the job already has maxCrashes forgiven crashes, Forgive changes nothing and returns
// false.
func (db DB) Forgive(ctx context.Context, j Job, maxCrashes int) (forgiven bool, err error) {
	keys := []string{Hash(j.Queue, j.ID), Key(j.Queue, Active), Key(j.Queue, Lease), Key(j.Queue, Retry)}
	return crashScript.Run(ctx, db.Redis, keys, j.ID, j.Msg, time.Now().Unix(), int64(LockMargin/time.Second), maxCrashes, j.Dequeue, j.Ended).Bool()
}

var promoteScript = script.New("asynq/promote")

// Promote moves denied jobs to the heads of their queues, behind jobs that earlier calls have
// promoted, in one round trip for each queue. The jobs of a queue run in the given order. Promote
// returns a result for each job: see lua/asynq/promote.lua. After an error the jobs of some queues
// may have been moved. A call is safe to repeat.
func (db DB) Promote(ctx context.Context, jobs ...throttle.JobID) ([]string, error) {
	results, args, indexes := make([]string, len(jobs)), map[string][]any{}, map[string][]int{}
	for i, j := range jobs {
		args[j.Queue], indexes[j.Queue] = append(args[j.Queue], j.ID), append(indexes[j.Queue], i)
	}
	for queue, ids := range args {
		keys := []string{Key(queue, Pending), Key(queue, Retry), Key(queue, Marker)}
		found, err := promoteScript.Run(ctx, db.Redis, keys, append([]any{Hash(queue, ""), time.Now().UnixNano()}, ids...)...).StringSlice()
		if err != nil {
			return nil, err
		}
		for k, i := range indexes[queue] {
			results[i] = found[k]
		}
	}
	return results, nil
}

var postponeScript = script.New("asynq/postpone")

// Postpone changes the retry times of denied jobs, and extends their Unique locks accordingly.
// until has the new times by job ID. Postpone does not change jobs that were promoted meanwhile.
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

// unixCeil returns t in Unix seconds, rounded up, so that no job runs early.
func unixCeil(t time.Time) int64 { return t.Add(time.Second - 1).Unix() }

// LockMargin is the time by which a job's Unique lock outlasts its wait, so that the lock still
// holds when the job runs.
const LockMargin = time.Minute

var extendLeaseScript = script.New("asynq/extend_lease")

// ExtendLeases extends the leases of jobs of a queue to the Unix second until. dequeues maps each
// job's ID to the name of the Dequeue that took it. It returns the IDs of the jobs whose lease is
// lost, because another Dequeue has taken the job or the job is not active.
func (db DB) ExtendLeases(ctx context.Context, queue string, until int64, dequeues map[string]string) (lost []string, err error) {
	keys, args := []string{Key(queue, Lease)}, []any{until}
	for id, dequeue := range dequeues {
		keys, args = append(keys, Hash(queue, id)), append(args, id, dequeue)
	}
	if len(dequeues) == 0 {
		return nil, nil
	}
	return extendLeaseScript.Run(ctx, db.Redis, keys, args...).StringSlice()
}

var writeResultScript = script.New("asynq/write_result")

// WriteResult stores the result of a job. It returns ErrNotActive if the job is gone or has another
// lease.
func (db DB) WriteResult(ctx context.Context, j Job, result any) error {
	n, err := writeResultScript.Run(ctx, db.Redis, []string{Hash(j.Queue, j.ID), Key(j.Queue, Lease)}, j.ID, j.Dequeue, result).Int64()
	if err == nil && n == 0 {
		return ErrNotActive
	}
	return err
}
