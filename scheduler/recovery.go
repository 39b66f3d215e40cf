package scheduler

import (
	"context"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/asynqdb"
)

const (
	// asynq's workers extend the leases of their jobs, to LeaseTime, at each heartbeat. A
	// living one, whose lease Redis did not let it extend, cancels its job at the first
	// heartbeat after the lease has ended.
	beat = 5 * time.Second
	// late is how much a lease has left, at most, that was not extended for two.
	late = asynqdb.LeaseTime - 2*beat
)

// A recovery brings jobs back whose worker died, within 40 s. asynq's own recoverer
// does so once a minute, for leases that ended half a minute ago, as the clocks of
// machines differ: 60 to 120 s after the death. Here the clocks count for less: a lease
// is dead if it has ended and was seen for two heartbeats without being extended.
//
// Every server does this for its queues, as with asynq's. Only one gets a job: the
// script that puts it back sees to it that its lease is still the one that was seen.
// Crashes that are forgiven no more are left to asynq.
type recovery struct {
	*queueRedis
	queues []string
	seen   map[job]sighting // late leases
}

// A sighting is when a late lease was first seen as it is.
type sighting struct {
	ends  int64 // a unix second, rounded down
	since time.Time
}

// recoverJobs looks after the leases of the server's queues until ctx ends: at each
// heartbeat, and each second while there is one that was not extended between two.
func (s *Server) recoverJobs(ctx context.Context) {
	r := recovery{queueRedis: s.redis, queues: s.queues}
	for {
		next := beat
		if r.look(ctx) {
			next = time.Second
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(next):
		}
	}
}

// look goes through all late leases once, and reports whether any should be looked at
// soon. Of a queue whose Redis does not answer none has been seen: nobody could extend.
func (r *recovery) look(ctx context.Context) (soon bool) {
	before, now := r.seen, time.Now()
	r.seen = map[job]sighting{}
	for _, queue := range r.queues {
		leases, err := r.db.Leases(ctx, queue, now.Add(late))
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

// recover brings a job back if its lease is dead. One that this process was to put
// back, and could not before its lease ended, is put back now, as the outage of Redis was
// no crash: it is this process's own lease, so its clock is right.
func (r *recovery) recover(ctx context.Context, j job, s sighting) {
	now := time.Now()
	over := now.Sub(time.Unix(s.ends+1, 0))
	why, own := r.putBacks.get(j)
	if over < 0 || !own && (over < beat || now.Sub(s.since) < 2*beat) {
		return
	}
	msgs, err := r.db.Messages(ctx, j.Queue, j.ID)
	if err != nil || msgs[0] == "" {
		return
	}
	msg := []byte(msgs[0])
	m, err := asynqdb.ParseMessage(msg)
	if err != nil {
		return
	}
	if own {
		back := r.returning(j, why, asynqdb.WithFailure(msg, why.Error(), now.Unix()), m.Unique)
		back.Lease = asynqdb.LeaseID{Ended: s.ends}
		_ = r.putBack(ctx, j, why, back)
		return
	}
	msg = asynqdb.WithFailure(msg, asynq.ErrLeaseExpired.Error(), now.Unix())
	_, _ = r.db.Forgive(ctx, j.Queue, j.ID, msg, m.Unique, r.forgiven, asynqdb.LeaseID{Ended: s.ends})
}
