package scheduler

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/asynqdb"
)

const (
	// asynq's workers extend the leases of their jobs, to LeaseTime, at each heartbeat. A living
	// worker, whose lease Redis did not let it extend, cancels its job at the first heartbeat after
	// the lease has ended.
	heartbeat = 5 * time.Second
	// lateLease is how much a lease has left, at most, that was not extended for two heartbeats.
	lateLease = asynqdb.LeaseTime - 2*heartbeat
	// walkEach is how often a walk through all jobs begins, at most. A page of it comes with a heartbeat.
	walkEach = time.Minute
)

// A recovery brings jobs back whose worker died, within 40 s. asynq's own recoverer does so once a
// minute, for leases that ended half a minute ago, because the clocks of machines differ: 60 to 120 s
// after the death. Here the clocks count for less: a lease is dead if it has ended and was seen for two
// heartbeats without being extended.
//
// Every server does this for its queues, as with asynq's. Only one gets a job, because the script that
// puts it back checks that its lease is still the one that was seen. Crashes that are no longer
// forgiven are left to asynq.
type recovery struct {
	*redisClient
	log    *slog.Logger
	queues []string
	seen   map[job]sighting // late leases
	walk   *asynqdb.Walk    // through all jobs
	page   time.Time        // when the next page of the walk is due
}

// A sighting is when a late lease was first seen as it is.
type sighting struct {
	ends  int64 // a Unix second, rounded down
	since time.Time
}

// recoverJobs watches the leases of the server's queues until ctx ends: at each heartbeat, and each
// second while a lease was not extended between two heartbeats.
func (s *Server) recoverJobs(ctx context.Context) {
	r := recovery{redisClient: s.redis, log: s.log, queues: slices.Sorted(maps.Keys(s.byQueue))}
	for ctx.Err() == nil {
		next := heartbeat
		if r.look(ctx) {
			next = time.Second
		}
		r.restore(ctx)
		sleep(ctx, next)
	}
}

// restore looks at one page of all jobs, and puts those back that Redis has lost from the lists and
// sets of the server's queues.
func (r *recovery) restore(ctx context.Context) {
	now := time.Now()
	if now.Before(r.page) {
		return
	}
	if r.walk.Done() {
		walk, err := r.db.NewWalk(ctx, r.queues)
		if err != nil {
			return
		}
		r.walk = walk
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
			restored, _ := r.db.Restore(ctx, queue, ids...)
			r.note(queue, restored)
		}
	}
}

// note logs that Redis had lost jobs of a queue.
func (r *recovery) note(queue string, jobs int) {
	if jobs > 0 {
		r.log.Warn("Redis has lost entries of a queue's jobs, and has them again", "queue", queue, "jobs", jobs)
	}
}

// look goes through all late leases once, and reports whether it must look again soon. If Redis does
// not answer for a queue, no lease of it has been seen, because no worker could extend it.
func (r *recovery) look(ctx context.Context) (soon bool) {
	before, now := r.seen, time.Now()
	r.seen = map[job]sighting{}
	for _, queue := range r.queues {
		repaired, err := r.db.Reconcile(ctx, queue)
		if err != nil {
			continue
		}
		r.note(queue, repaired)
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

// recover brings a job back if its lease is dead. A job that this process was to put back, and could
// not before its lease ended, is put back at once, because the outage of Redis was no crash. It is this
// process's own lease, so its clock is right.
func (r *recovery) recover(ctx context.Context, j job, s sighting) {
	now := time.Now()
	over := now.Sub(time.Unix(s.ends+1, 0))
	a := r.inFlight.get(j)
	why := a.ending().putBack
	if over < 0 || why == nil && (over < heartbeat || now.Sub(s.since) < 2*heartbeat) {
		return
	}
	msgs, err := r.db.Fields(ctx, j.Queue, asynqdb.FieldMessage, j.ID)
	if err != nil {
		return
	}
	if msgs[0] == "" {
		if dropped, _ := r.db.Restore(ctx, j.Queue, j.ID); dropped > 0 {
			r.log.Warn("Redis has lost an active job: it cannot run", "queue", j.Queue, "id", j.ID)
		}
		return
	}
	msg, lease := []byte(msgs[0]), asynqdb.LeaseID{Ended: s.ends}
	m, err := asynqdb.ParseMessage(msg)
	switch {
	case err != nil:
	case why != nil:
		back := r.newPutBack(a, why, asynqdb.WithFailure(msg, why.Error(), now.Unix()), m.Unique)
		back.Lease = lease
		_ = r.putBack(ctx, a, why, back)
	default:
		_, _ = r.db.Forgive(ctx, j.Queue, j.ID, asynqdb.WithFailure(msg, asynq.ErrLeaseExpired.Error(), now.Unix()), m.Unique, r.forgiven, lease)
	}
}
