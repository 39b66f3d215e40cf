package asynqdb

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/script"
)

// A Dequeue takes jobs from a queue. Where its answer gets lost jobs have been taken of which
// nobody knows: sent again, the same one finds them.
type Dequeue struct {
	Queue string
	Ends  int64 // unix second at which the jobs' leases end
	Woken bool  // whether a mark of the queue's bell was used up for it

	name string
	sent script.Sent
}

// NewDequeue has a name that no other has, and that asynq can read as a job's pending_since
// where it makes the job pending again: the time in nanoseconds, to the second.
func NewDequeue(queue string, ends int64, woken bool) *Dequeue {
	name := strconv.FormatInt((time.Now().Unix()-1)*1e9+rand.Int64N(1e9), 10)
	return &Dequeue{Queue: queue, Ends: ends, Woken: woken, name: name}
}

// LeaseEnd is when the leases end.
func (d *Dequeue) LeaseEnd() time.Time { return time.Unix(d.Ends, 0) }

// Lease is the lease that each of the jobs has.
func (d *Dequeue) Lease() LeaseID { return LeaseID{Dequeue: d.name} }

// Taken is an active job's ID, and its message as asynq stores it.
type Taken struct {
	ID, Msg string
	Back    bool // whether it was put back, or given back after it had asked, since it was enqueued
}

// Dequeue takes up to n jobs from the head of the queue, or those that it took before. The
// first to run comes first.
func (db DB) Dequeue(ctx context.Context, d *Dequeue, n int) ([]Taken, error) {
	q := d.Queue
	keys := []string{Key(q, Pending), Key(q, Paused), Key(q, Active), Key(q, Lease), Key(q, Bell)}
	found, err := dequeueScript.Run(ctx, db.Redis, keys, d.Ends, Hash(q, ""), n, d.name, &d.sent, d.Woken).StringSlice()
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, err
	}
	jobs := make([]Taken, 0, len(found)/3)
	for job := range slices.Chunk(found, 3) {
		jobs = append(jobs, Taken{job[0], job[1], job[2] != ""})
	}
	return jobs, nil
}

// DequeueOf is the Dequeue that has taken the jobs of a lease.
func DequeueOf(queue string, lease LeaseID) *Dequeue {
	return &Dequeue{Queue: queue, name: lease.Dequeue}
}

// GiveBack gives jobs that it took back to the head of their queue, the first to run in front.
// Those that have asked for permits are given back with their messages.
func (db DB) GiveBack(ctx context.Context, d *Dequeue, jobs ...Taken) error {
	args := []any{Hash(d.Queue, ""), d.name}
	for _, job := range jobs {
		if args = append(args, job.ID, ""); job.Back {
			args[len(args)-1] = job.Msg
		}
	}
	keys := []string{Key(d.Queue, Pending), Key(d.Queue, Active), Key(d.Queue, Lease), Key(d.Queue, Bell)}
	return giveBackScript.Run(ctx, db.Redis, keys, args...).Err()
}
