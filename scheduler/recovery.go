package scheduler

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/asynqdb"
)

const (
	// heartbeat is how often asynq's workers extend the leases of their jobs, to LeaseTime. A
	// worker that could not extend a lease cancels the job at the first heartbeat after the lease
	// ended.
	heartbeat = 5 * time.Second
	// lateLease is the maximum remaining time of a lease that was not extended for two heartbeats.
	lateLease = asynqdb.LeaseTime - 2*heartbeat
	// walkEach is the pause between two walks through all jobs. Each heartbeat looks at one page of
	// a walk.
	walkEach = time.Minute
)

// recovery puts jobs of dead workers back within 40 s. asynq's own recoverer needs 60 to 120 s,
// because it waits half a minute for differences between clocks. Here a lease is dead if it has
// ended and was not extended while this process watched it for two heartbeats.
//
// Every server recovers the jobs of its queues. Only one server recovers a given job, because the
// script checks that the lease is still the one that was seen. If a job's crash is not forgiven any
// more, asynq's recoverer handles the job.
type recovery struct {
	*Server
	queues []string
	seen   map[job]sighting // the late leases of the last look
	walk   *asynqdb.Walk    // through all jobs
	page   time.Time        // when the next page of the walk is due
	warned map[string]bool  // queues about which noteOutside has warned
}

// sighting records when a late lease was first seen with its current end.
type sighting struct {
	ends  int64 // a Unix second, rounded down
	since time.Time
}

// recoverJobs watches the leases of the server's queues until ctx ends: at each heartbeat, and each
// second while a lease was not extended between two heartbeats.
func (s *Server) recoverJobs(ctx context.Context) {
	r := recovery{Server: s, queues: slices.Sorted(maps.Keys(s.byQueue)), warned: map[string]bool{}}
	for ctx.Err() == nil {
		next := heartbeat
		if r.look(ctx) {
			next = time.Second
		}
		r.restore(ctx)
		sleep(ctx, next)
	}
}

// restore looks at one page of all jobs. If a job of the server's queues is missing in asynq's
// lists and sets, restore adds it again.
func (r *recovery) restore(ctx context.Context) {
	now := time.Now()
	if now.Before(r.page) {
		return
	}
	var err error
	if r.walk.Done() {
		r.noteOutside(ctx)
		if r.walk, err = r.db.NewWalk(ctx, r.queues); err != nil {
			return
		}
	}
	if r.page = now.Add(heartbeat); r.walk.Done() {
		return
	}
	jobs, err := r.walk.Next(ctx)
	if r.walk.Done() {
		r.page = now.Add(walkEach)
	}
	if err != nil {
		return
	}
	for queue, ids := range jobs {
		if slices.Contains(r.queues, queue) {
			restored, lost, _ := r.db.Restore(ctx, queue, ids...)
			r.note(queue, restored, lost)
		}
	}
}

// note logs what Redis had lost of a queue: entries that it has again, and jobs.
func (r *recovery) note(queue string, restored int, lost []string) {
	if restored > 0 {
		r.log.Warn("Redis has lost entries of a queue's jobs, and has them again", "queue", queue, "entries", restored)
	}
	for _, id := range lost {
		r.log.Warn("Redis has lost an active job: it cannot run", "queue", queue, "id", id)
	}
}

// noteOutside warns once of each queue with shards that has jobs outside of them: an asynq client
// that does not know the shards has enqueued them.
func (r *recovery) noteOutside(ctx context.Context) {
	for queue := range r.shards {
		jobs, err := r.db.CountUnfinished(ctx, []string{queue})
		if err == nil && jobs > 0 && !r.warned[queue] {
			r.warned[queue] = true
			r.log.Warn("a queue with shards has jobs outside of its shards: no server runs them", "queue", queue, "jobs", jobs)
		}
	}
}

// look checks all late leases once, and reports whether to check again within a second. It also
// repairs queues whose active jobs and leases differ in number. If Redis does not answer for a
// queue, its leases count as not seen before, because no worker could extend them.
func (r *recovery) look(ctx context.Context) (soon bool) {
	before, now := r.seen, time.Now()
	r.seen = map[job]sighting{}
	for _, queue := range r.queues {
		restored, lost, err := r.db.Reconcile(ctx, queue)
		if err != nil {
			continue
		}
		r.note(queue, restored, lost)
		leases, err := r.db.Leases(ctx, queue, now.Add(lateLease))
		if err != nil {
			continue
		}
		for _, lease := range leases {
			j, s := job{Queue: queue, ID: lease.ID}, sighting{lease.Ends, now}
			if first, ok := before[j]; ok && first.ends == s.ends {
				s, soon = first, true
			}
			r.seen[j] = s
			r.recover(ctx, j, s)
		}
	}
	return soon
}

// recover puts a job back if its lease is dead. In an outage of Redis, this process may have failed
// to put its own job back. recover repeats that put-back, and counts no crash. It does not wait
// after the end of such a lease, because this process's clock set the end.
func (r *recovery) recover(ctx context.Context, j job, s sighting) {
	now := time.Now()
	over := now.Sub(time.Unix(s.ends+1, 0))
	a := r.inFlight.get(j)
	var why *putBackError
	if a != nil {
		why = a.end.Load().putBack
	}
	if over < 0 || why == nil && (over < heartbeat || now.Sub(s.since) < 2*heartbeat) {
		return
	}
	msgs, err := r.db.Fields(ctx, j.Queue, asynqdb.FieldMessage, j.ID)
	if err != nil {
		return
	}
	if msgs[0] == "" {
		_, lost, _ := r.db.Restore(ctx, j.Queue, j.ID)
		r.note(j.Queue, 0, lost)
		return
	}
	if _, err := asynqdb.ParseMessage([]byte(msgs[0])); err != nil {
		return
	}
	crashed := asynqdb.Job{JobID: j, Msg: asynqdb.WithFailure([]byte(msgs[0]), asynq.ErrLeaseExpired.Error(), now.Unix()), Ended: s.ends}
	if why == nil {
		_, _ = r.db.Forgive(ctx, crashed, r.forgivenCrashes)
		return
	}
	back := r.newPutBack(a, why, asynqdb.WithLastError(crashed.Msg, why.Error()))
	back.Dequeue, back.Ended = "", s.ends
	_ = r.putBack(ctx, a, back)
}
