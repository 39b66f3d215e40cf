package scheduler

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/redishealth"
)

const (
	// heartbeat is the time between two extensions of a lease by asynq's worker. A worker that
	// could not extend a lease cancels the job at the first heartbeat after the lease ended.
	heartbeat = 5 * time.Second
	// lateLease is the maximum remaining time of a lease that was not extended for two heartbeats.
	lateLease = asynqdb.LeaseTime - 2*heartbeat
)

// recovery puts jobs of dead workers back within 40 s. asynq's own recoverer needs 60 to 120 s,
// because it waits half a minute for differences between clocks. Here a lease is dead if it has
// ended, and was not extended while this process watched the lease for two heartbeats.
//
// Every server recovers the jobs of its queues. Only one server recovers a given job, because the
// script checks that the lease is still the one that was seen. If a job's crash is no longer
// forgiven, asynq's recoverer handles the job.
type recovery struct {
	*Server
	queues     []string
	lateLeases map[job]sighting // of the last checkLeases
	// archivedCheckAt is when expireArchived looks again.
	archivedCheckAt time.Time
}

// sighting records when a late lease was first seen with its current end.
type sighting struct {
	ends  int64 // a Unix second, rounded down
	since time.Time
}

// recoverJobs checks the leases of the server's queues at each heartbeat until ctx ends. While a
// lease was not extended between two checks, recoverJobs checks each second.
func (s *Server) recoverJobs(ctx context.Context) {
	r := recovery{Server: s, queues: slices.Sorted(maps.Keys(s.byQueue))}
	for ctx.Err() == nil {
		next := heartbeat
		r.repeatPutBacks(ctx)
		if r.checkLeases(ctx) {
			next = time.Second
		}
		r.expireArchived(ctx)
		sleep(ctx, next)
	}
}

// checkLeases checks all late leases once, and reports whether to check again within a second. It
// also repairs queues whose active jobs and leases differ in number. If Redis does not answer for a
// queue, its leases count as not seen before, because no worker could extend them.
func (r *recovery) checkLeases(ctx context.Context) (soon bool) {
	before, now := r.lateLeases, time.Now()
	r.lateLeases = map[job]sighting{}
	for _, queue := range r.queues {
		restored, lost, err := r.db.Reconcile(ctx, queue)
		if err != nil {
			continue
		}
		r.logLost(queue, restored, lost)
		leases, err := r.db.Leases(ctx, queue, now.Add(lateLease))
		if err != nil {
			continue
		}
		for _, lease := range leases {
			j, s := job{Queue: queue, ID: lease.ID}, sighting{lease.Ends, now}
			if first, ok := before[j]; ok && first.ends == s.ends {
				s, soon = first, true
			}
			r.lateLeases[j] = s
			r.recover(ctx, j, s)
		}
	}
	return soon
}

// repeatPutBacks repeats this server's put-backs whose replies did not arrive. A put-back changes
// nothing if it was written, or if another worker has the job.
func (r *recovery) repeatPutBacks(ctx context.Context) {
	for a, back := range r.inFlight.keptPutBacks() {
		switch err := r.putBack(ctx, a, back); {
		case redishealth.Unavailable(err) != nil:
			return
		case err != nil:
			r.inFlight.dropPutBack(a) // the script cannot write it, so the job counts as crashed
		}
	}
}

// recover puts a job back if its lease is dead.
func (r *recovery) recover(ctx context.Context, j job, s sighting) {
	now := time.Now()
	if now.Sub(time.Unix(s.ends+1, 0)) < heartbeat || now.Sub(s.since) < 2*heartbeat {
		return
	}
	msgs, err := r.db.Fields(ctx, j.Queue, asynqdb.FieldMessage, j.ID)
	if err != nil {
		return
	}
	if msgs[0] == "" {
		_, lost, _ := r.db.Restore(ctx, j.Queue, j.ID)
		r.logLost(j.Queue, 0, lost)
		return
	}
	if _, err := asynqdb.ParseMessage([]byte(msgs[0])); err != nil {
		return
	}
	crashed := asynqdb.Job{JobID: j, Msg: asynqdb.WithFailure([]byte(msgs[0]), asynq.ErrLeaseExpired.Error(), now.Unix()), Ended: s.ends}
	_, _ = r.db.Forgive(ctx, crashed, r.forgivenCrashes)
}
