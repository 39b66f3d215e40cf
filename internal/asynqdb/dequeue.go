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

// A Dequeue identifies one call that takes jobs from a queue. If Redis's reply is lost, this
// process does not know the jobs that it took. Sending the same Dequeue again returns those jobs.
type Dequeue struct {
	Queue string
	Ends  int64 // the Unix second at which the jobs' leases end
	Woken bool  // whether a marker of the queue was consumed for this call
	// Rest is the time after this Dequeue in which new jobs stay in the queue. New jobs are those
	// that were never put back. During a rest, a Dequeue with a positive Rest takes no new jobs and
	// starts no rest of its own. A Dequeue with a Rest of 0 takes any job, also during a rest. With
	// the Rest NoNew, a Dequeue never takes new jobs.
	Rest time.Duration

	name string
	sent script.Sent
}

// NoNew is the Rest of a Dequeue that takes only jobs that were put back.
const NoNew = -time.Millisecond

// NewDequeue returns a Dequeue with a unique name. Redis keeps the name in the field
// pending_since of each job. asynq reads that field as a time if it makes the job pending again. So
// the name looks like a time: a second ago in nanoseconds, with random digits below the second.
func NewDequeue(queue string, ends int64, woken bool) *Dequeue {
	name := strconv.FormatInt((time.Now().Unix()-1)*1e9+rand.Int64N(1e9), 10)
	return &Dequeue{Queue: queue, Ends: ends, Woken: woken, name: name}
}

// LeaseEnd returns Ends as a time.
func (d *Dequeue) LeaseEnd() time.Time { return time.Unix(d.Ends, 0) }

// Lease returns the LeaseID of the jobs that this Dequeue took.
func (d *Dequeue) Lease() LeaseID { return LeaseID{Dequeue: d.name} }

// Taken is an active job that a Dequeue took.
type Taken struct {
	ID, Msg string // Msg is the message as asynq stores it
	Back    bool   // whether the job was put back since it was enqueued
}

// Dequeue takes up to n jobs from the head of the queue, or returns the jobs that the same call
// took before. The result is in the order in which the jobs are to run.
func (db DB) Dequeue(ctx context.Context, d *Dequeue, n int) ([]Taken, error) {
	q := d.Queue
	keys := []string{Key(q, Pending), Key(q, Paused), Key(q, Active), Key(q, Lease), Key(q, Marker), Key(q, Pass)}
	found, err := dequeueScript.Run(ctx, db.Redis, keys, d.Ends, Hash(q, ""), n, d.name, &d.sent, d.Woken, d.Rest.Milliseconds()).StringSlice()
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, err
	}
	jobs := make([]Taken, 0, len(found)/3)
	for job := range slices.Chunk(found, 3) {
		jobs = append(jobs, Taken{job[0], job[1], job[2] != ""})
	}
	return jobs, nil
}

// DequeueOf returns a Dequeue for GiveBack: it has only the queue and the name of the Dequeue that
// took the jobs with this lease. It cannot take jobs.
func DequeueOf(queue string, lease LeaseID) *Dequeue {
	return &Dequeue{Queue: queue, name: lease.Dequeue}
}

// GiveBack returns jobs of the Dequeue d to the head of their queue. The jobs then run in the given
// order. If a job's Back is set, GiveBack also stores its Msg, because a header of Msg has the
// job's place in its lane.
func (db DB) GiveBack(ctx context.Context, d *Dequeue, jobs ...Taken) error {
	args := []any{Hash(d.Queue, ""), d.name}
	for _, job := range jobs {
		if args = append(args, job.ID, ""); job.Back {
			args[len(args)-1] = job.Msg
		}
	}
	keys := []string{Key(d.Queue, Pending), Key(d.Queue, Active), Key(d.Queue, Lease), Key(d.Queue, Marker)}
	return giveBackScript.Run(ctx, db.Redis, keys, args...).Err()
}
