package dispatcher

import (
	"context"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/fairqueue"
	"github.com/headgate/headgate/throttle"
)

const (
	// extendInterval is the interval at which put-backs are extended. It grows up to
	// maxExtendInterval while no turn is due, because no put-back ends before the next turn.
	extendInterval    = 2 * time.Second
	maxExtendInterval = 30 * time.Second
	// extendBefore is the shortest time that a put-back still has when it is extended. A put-back
	// outlasts the estimated wait by extendBefore and extendInterval, so it needs no extension if
	// the estimate was right.
	extendBefore = 3 * time.Second
	// DefaultReconcileInterval is the interval between two checks of one kind.
	DefaultReconcileInterval = time.Minute
	// missingInterval is the interval between two checks of the jobs if a granted job was missing:
	// if an operator has deleted that job, other jobs may have been deleted, too.
	missingInterval = 5 * time.Second
	// The reconciler works for workFor at a time, because no turns are given meanwhile. Then it
	// rests restFor times as long as it worked, and at most extendInterval.
	workFor = 20 * time.Millisecond
	restFor = 3
)

// A check compares some waiting jobs with asynq or with what Redis counts, and repairs what is
// wrong.
type check struct {
	step     step
	interval *time.Duration // from the end of the check until it begins again
	more     bool
	last     time.Time // end of the last step
}

// A step does a part of a check, and reports whether there is more. After an error it is repeated.
type step func(ctx context.Context) (more bool, err error)

// due returns the time of the next step. A check with more steps is due at once, but after the
// others that are due, so that a large queue does not delay them.
func (c *check) due() time.Time {
	if c.more {
		return c.last
	}
	return c.last.Add(*c.interval)
}

// reconciler keeps waiting jobs consistent with asynq, whose data are right. Once a minute it
// forgets waiting jobs that asynq does not have any more, promotes denied jobs without a record, so
// that they request permits again, and repairs damaged data. Every few seconds it extends the
// put-backs of waiting jobs that are about to end, because those jobs would come back without
// permits.
//
// The data change while a check runs. The next check finds what this one misses.
type reconciler struct {
	queues []string // queues that have jobs or servers of this scope
	checks []*check // nil if all checks are to begin anew
	missed bool     // since the last check of the jobs, a granted job was missing
	// jobInterval and extendInterval are the intervals of the check of jobs and of put-backs.
	jobInterval, extendInterval time.Duration
	restUntil                   time.Time
	found                       found
}

// found counts what was wrong, for one log line of each kind.
type found struct {
	forgotten, orphans int
	one                string // one of the forgotten jobs
	repaired           int    // records, lanes and counts
}

// restart begins all checks at once, because Redis may have lost data.
func (r *reconciler) restart() { r.checks = nil }

// addQueues adds queues to those that are checked. Other queues can be on other nodes of a cluster,
// whose outages must not delay this scope.
func (r *reconciler) addQueues(queues ...string) {
	for _, queue := range queues {
		if !slices.Contains(r.queues, queue) {
			r.queues = append(r.queues, queue)
			r.restart()
		}
	}
}

// nextCheck returns the check whose step is due next.
func (d *dispatcher) nextCheck() *check {
	r := &d.reconciler
	if r.jobInterval = d.ReconcileInterval; r.missed {
		r.jobInterval = missingInterval
	}
	r.extendInterval = min(max(time.Until(d.clock.local(d.core.Next(d.clock.now()))), extendInterval), maxExtendInterval)
	if r.checks == nil {
		interval := &d.ReconcileInterval
		r.addQueues(d.Queues...)
		r.checks = []*check{
			{step: d.readWeights, interval: interval},
			{step: d.checkJobs(), interval: &r.jobInterval},
			{step: d.checkLanes(), interval: interval},
			{step: d.checkReserved(), interval: interval},
		}
		for _, queue := range r.queues {
			r.checks = append(r.checks, &check{step: d.checkOrphans(queue), interval: interval}, &check{step: d.extendPutBacks(queue), interval: &r.extendInterval})
		}
	}
	return slices.MinFunc(r.checks, func(a, b *check) int { return a.due().Compare(b.due()) })
}

// reconcile does the steps that are due. While the reconciler rests, it does nothing.
func (d *dispatcher) reconcile(ctx context.Context) error {
	r, began := &d.reconciler, time.Now()
	if began.Before(r.restUntil) {
		return nil
	}
	for time.Since(began) < workFor {
		c := d.nextCheck()
		if c.due().After(time.Now()) {
			break
		}
		more, err := c.step(ctx)
		if err != nil {
			return err
		}
		if c.more, c.last = more, time.Now(); !more {
			d.logFound()
		}
	}
	worked := time.Since(began)
	r.restUntil = began.Add(worked + min(restFor*worked, extendInterval))
	return nil
}

func (d *dispatcher) logFound() {
	f := &d.reconciler.found
	if f.forgotten > 0 {
		d.Log.Info("removed the records of waiting jobs that were deleted, archived or run manually", "jobs", f.forgotten, "one of them", f.one)
	}
	if f.orphans > 0 {
		d.Log.Warn("denied jobs had no record in the limiter's Redis; returned them to their queues", "jobs", f.orphans)
	}
	if f.repaired > 0 {
		d.Log.Warn("repaired inconsistent records of waiting jobs in Redis; keys may have been changed manually", "records, lanes and counts", f.repaired)
	}
	*f = found{}
}

// checkJobs forgets waiting jobs that asynq will not run any more, or whose ID belongs to another
// job by now. Then it corrects the demand at meters. Jobs join and leave their lanes meanwhile, so
// any number is right that is between Redis's counts before and after the check.
func (d *dispatcher) checkJobs() step {
	var cursor uint64
	var before, wanted map[string]int64
	return func(ctx context.Context) (more bool, err error) {
		defer func() {
			if err != nil || !more {
				before = nil // begin again
			}
		}()
		if before == nil {
			cursor, wanted, d.reconciler.missed = 0, map[string]int64{}, false
			if before, err = d.Waits.DemandByMeter(ctx); d.limiterHealth.Note(ctx, err) != nil {
				return false, err
			}
		}
		jobs, next, repaired, err := d.Waits.RepairRecords(ctx, cursor, PageSize, wanted)
		if d.limiterHealth.Note(ctx, err) != nil {
			return false, err
		}
		cursor = next
		d.reconciler.found.repaired += repaired
		if err := d.forgetEnded(ctx, jobs); err != nil || next != 0 {
			return true, err
		}
		after, err := d.Waits.DemandByMeter(ctx)
		if d.limiterHealth.Note(ctx, err) != nil {
			return false, err
		}
		for meter := range after {
			wanted[meter] += 0
		}
		for meter, permits := range wanted {
			if was, is := before[meter], after[meter]; permits >= min(was, is) && permits <= max(was, is) {
				delete(wanted, meter)
			}
		}
		return false, d.limiterHealth.Note(ctx, d.Waits.SetDemand(ctx, wanted))
	}
}

// forgetEnded forgets those jobs that asynq will not run any more. A job that asynq will run is in
// retry, pending or active at each moment, even while it moves from one state to another.
func (d *dispatcher) forgetEnded(ctx context.Context, jobs []throttle.JobID) error {
	byQueue := map[string][]string{}
	for _, job := range jobs {
		byQueue[job.Queue] = append(byQueue[job.Queue], job.ID)
	}
	var ended []throttle.JobID
	for queue, ids := range byQueue {
		states, err := d.DB.Fields(ctx, queue, asynqdb.FieldState, ids...)
		if d.queuesHealth.Note(ctx, err) != nil {
			return err
		}
		for i, state := range states {
			if state != "retry" && state != "pending" && state != "active" {
				ended = append(ended, throttle.JobID{Queue: queue, ID: ids[i]})
			}
		}
	}
	return d.forget(ctx, ended)
}

// checkLanes tells the core of lanes in Redis that it does not know, for example after a failover.
// It removes lanes with invalid names from Redis.
func (d *dispatcher) checkLanes() step {
	offset := 0
	return func(ctx context.Context) (more bool, err error) {
		lanes, err := d.Waits.LaneNames(ctx, offset, PageSize)
		if d.limiterHealth.Note(ctx, err) != nil {
			return false, err
		}
		if offset += len(lanes); len(lanes) < PageSize {
			offset = 0
		}
		var unknown []string
		for _, lane := range lanes {
			switch {
			case d.core.HasLane(lane):
			case fairqueue.IsLane(lane):
				unknown = append(unknown, lane)
			default:
				d.reconciler.found.repaired++
				if err := d.limiterHealth.Note(ctx, d.Waits.DropLane(ctx, lane)); err != nil {
					return false, err
				}
			}
		}
		return len(lanes) == PageSize, d.expireLanes(ctx, unknown, true)
	}
}

// checkReserved corrects the number of permits that are reserved for granted jobs, one meter a
// step.
func (d *dispatcher) checkReserved() step {
	var meters []string
	var cursor uint64
	return func(ctx context.Context) (more bool, err error) {
		if len(meters) == 0 {
			if meters, cursor, err = d.Waits.Reserved(ctx, cursor, PageSize); d.limiterHealth.Note(ctx, err) != nil {
				return false, err
			}
		}
		if len(meters) > 0 {
			repaired, err := d.Waits.RepairReserved(ctx, d.process, meters[0], d.core.GrantedLanes(meters[0]))
			if d.limiterHealth.Note(ctx, err) != nil {
				return false, err
			}
			meters = meters[1:]
			d.reconciler.found.repaired += repaired
		}
		return len(meters) > 0 || cursor != 0, nil
	}
}

// checkOrphans promotes denied jobs of this scope that have no record, so that they request permits
// again. Either the limiter's Redis has lost the records, or it could not be reached when the
// job was denied.
func (d *dispatcher) checkOrphans(queue string) step {
	offset := 0
	return func(ctx context.Context) (more bool, err error) {
		ids, next, err := d.DB.Denied(ctx, queue, time.Time{}, offset)
		if d.queuesHealth.Note(ctx, err) != nil {
			return false, err
		}
		known, err := d.Waits.Known(ctx, jobIDs(queue, ids))
		if d.limiterHealth.Note(ctx, err) != nil {
			return false, err
		}
		var unknown []string
		for i, id := range ids {
			if !known[i] {
				unknown = append(unknown, id)
			}
		}
		scopes, err := d.DB.Fields(ctx, queue, asynqdb.FieldScope, unknown...)
		if d.queuesHealth.Note(ctx, err) != nil {
			return false, err
		}
		_, own := d.Waits.Scope()
		var orphans []throttle.JobID
		for i, scope := range scopes {
			if scope == own {
				orphans = append(orphans, throttle.JobID{Queue: queue, ID: unknown[i]})
			}
		}
		states, err := d.promote(ctx, orphans)
		if err != nil {
			return false, err
		}
		for _, state := range states {
			if state == fairqueue.StateMoved {
				d.reconciler.found.orphans++
			}
		}
		offset = max(0, next-len(orphans)) // the orphans have left the set
		return next >= 0, nil
	}
}

// extendPutBacks extends the put-backs of a queue's waiting jobs that end before the next
// extension: to the present estimate of each job's wait, and at least to the next extension. It
// skips granted jobs: they are promoted, or come back at the end of their put-back if the promotion
// was lost. It takes up to four round trips a page.
func (d *dispatcher) extendPutBacks(queue string) step {
	var before time.Time
	offset := 0
	return func(ctx context.Context) (more bool, err error) {
		if offset == 0 {
			before = time.Now().Add(d.reconciler.extendInterval + extendBefore)
		}
		ids, next, err := d.DB.Denied(ctx, queue, before, offset)
		if d.queuesHealth.Note(ctx, err) != nil {
			return false, err
		}
		positions, err := d.Waits.Positions(ctx, jobIDs(queue, ids)...)
		if d.limiterHealth.Note(ctx, err) != nil {
			return false, err
		}
		later := map[string]time.Time{}
		for job, position := range positions {
			if !position.Granted {
				later[job.ID] = time.Now().Add(max(position.PutBack(), time.Until(before)))
			}
		}
		offset = max(0, next-len(later)) // the extended put-backs end after `before` now, so they have left the list
		return next >= 0, d.queuesHealth.Note(ctx, d.DB.Postpone(ctx, queue, later))
	}
}

func jobIDs(queue string, ids []string) []throttle.JobID {
	jobs := make([]throttle.JobID, len(ids))
	for i, id := range ids {
		jobs[i] = throttle.JobID{Queue: queue, ID: id}
	}
	return jobs
}
