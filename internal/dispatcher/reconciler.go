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
	// extendInterval is the interval at which put-backs are extended. It does not depend on when the
	// next turn is due, because a job that is expected to start at once may wait for a lane that goes
	// before its own. While no job waits, the interval is idleExtendInterval.
	extendInterval     = 2 * time.Second
	idleExtendInterval = 30 * time.Second
	// A put-back is extended at least extendBefore before it ends. The shortest put-back is as long as
	// this and extendInterval.
	extendBefore = 3 * time.Second
	// DefaultReconcileInterval is the interval between two checks of one kind.
	DefaultReconcileInterval = time.Minute
	// missingInterval is the interval between two checks of the jobs if a job or a record was missing:
	// if an operator has deleted a job, other jobs may have been deleted, too.
	missingInterval = 5 * time.Second
	// The reconciler works for workFor at a time, because no turns are given meanwhile. Then it
	// rests restFor times as long as it worked, and at most extendInterval.
	workFor = 20 * time.Millisecond
	restFor = 3
	// reservedPage is about the number of meters that one step of checkReserved corrects, each in a
	// call of its own.
	reservedPage = 20
)

// A check compares some waiting jobs with asynq or with what Redis counts, and repairs what is
// wrong. Each step checks one page, and reports whether more pages follow. After an error the check
// begins again.
type check struct {
	step     func(ctx context.Context, c *check) (more bool, err error)
	queue    string         // empty if the check is for all queues
	interval *time.Duration // from the end of the check until it begins again
	cursor   uint64         // of the next page
	before   time.Time      // for extendPutBacks: the put-backs that end before this time are extended
	more     bool           // whether the check has begun, and not ended
	last     time.Time      // end of the last step
}

// due returns the time of the next step. A check with more steps is due at once, but after other
// due checks, so that a large queue does not delay them.
func (c *check) due() time.Time {
	if c.more {
		return c.last
	}
	return c.last.Add(*c.interval)
}

// reconciler keeps waiting jobs consistent with asynq, whose data count as right. Once a minute it
// forgets waiting jobs that asynq does not have any more, promotes denied jobs without a record,
// and repairs damaged data. Every few seconds it extends put-backs that are about to end, because
// their jobs would come back without permits.
//
// The data change while a check runs. The next check finds what this one misses.
type reconciler struct {
	queues     []string // queues that have jobs or servers of this scope
	checks     []*check // nil if all checks are to begin anew
	jobMissing bool     // since the last check of the jobs, a granted job or the record of a denied job was missing
	// jobInterval and extendInterval are the intervals of the check of jobs and of put-backs.
	jobInterval, extendInterval time.Duration
	restUntil                   time.Time
	found                       found
	// demand is Redis's count of the permits that jobs want at each meter when the check of the jobs
	// began, and wanted is that check's own count so far.
	demand, wanted map[string]int64
}

// found counts what was wrong, for one log line of each kind.
type found struct {
	forgotten, orphans int
	example            string // one of the forgotten jobs
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
	if r.jobInterval = d.ReconcileInterval; r.jobMissing {
		r.jobInterval = missingInterval
	}
	r.extendInterval = extendInterval
	if d.core.IsEmpty() {
		r.extendInterval = idleExtendInterval
	}
	if r.checks == nil {
		interval := &d.ReconcileInterval
		r.addQueues(d.Queues...)
		r.checks = []*check{
			{step: d.readWeights, interval: interval},
			{step: d.checkJobs, interval: &r.jobInterval},
			{step: d.checkLanes, interval: interval},
			{step: d.checkReserved, interval: interval},
		}
		for _, queue := range r.queues {
			r.checks = append(r.checks,
				&check{step: d.checkOrphans, queue: queue, interval: interval},
				&check{step: d.extendPutBacks, queue: queue, interval: &r.extendInterval})
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
		more, err := c.step(ctx, c)
		if err != nil {
			c.cursor, c.more, c.last = 0, false, time.Time{}
			return err
		}
		if c.more, c.last = more, time.Now(); !more {
			c.cursor = 0
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
		d.Log.Info("removed the records of waiting jobs that were deleted, archived or run manually", "jobs", f.forgotten, "one of them", f.example)
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
// job by now. Then it corrects the demand at meters. Jobs join and leave lanes during the check, so
// any demand between Redis's counts before and after the check is right.
func (d *dispatcher) checkJobs(ctx context.Context, c *check) (more bool, err error) {
	r := &d.reconciler
	if !c.more {
		r.wanted, r.jobMissing = map[string]int64{}, false
		if r.demand, err = d.Waits.DemandByMeter(ctx); d.limiterHealth.Note(ctx, err) != nil {
			return false, err
		}
	}
	jobs, next, repaired, err := d.Waits.RepairRecords(ctx, c.cursor, PageSize, r.wanted)
	if d.limiterHealth.Note(ctx, err) != nil {
		return false, err
	}
	c.cursor = next
	r.found.repaired += repaired
	if err := d.forgetEnded(ctx, jobs); err != nil || next != 0 {
		return true, err
	}
	after, err := d.Waits.DemandByMeter(ctx)
	if d.limiterHealth.Note(ctx, err) != nil {
		return false, err
	}
	for meter := range after {
		r.wanted[meter] += 0
	}
	for meter, permits := range r.wanted {
		if was, is := r.demand[meter], after[meter]; permits >= min(was, is) && permits <= max(was, is) {
			delete(r.wanted, meter)
		}
	}
	return false, d.limiterHealth.Note(ctx, d.Waits.SetDemand(ctx, r.wanted))
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
// It removes lanes with invalid names from Redis. It also publishes the shares of all meters again,
// because Redis may have lost them: without the mark of a meter no freed slot causes a notification.
func (d *dispatcher) checkLanes(ctx context.Context, c *check) (more bool, err error) {
	lanes, err := d.Waits.LaneNames(ctx, int(c.cursor), PageSize)
	if d.limiterHealth.Note(ctx, err) != nil {
		return false, err
	}
	c.cursor += uint64(len(lanes))
	var unknown []string
	for _, lane := range lanes {
		switch {
		case d.core.HasLane(lane):
			d.core.Republish(lane)
		case fairqueue.IsLane(lane):
			unknown = append(unknown, lane)
		default:
			d.reconciler.found.repaired++
			if err := d.limiterHealth.Note(ctx, d.Waits.DropLane(ctx, lane)); err != nil {
				return false, err
			}
		}
	}
	if err := d.expireLanes(ctx, unknown, true); err != nil {
		return false, err
	}
	return len(lanes) == PageSize, d.publishShares(ctx, false)
}

// checkReserved corrects the number of permits that are reserved for granted jobs.
func (d *dispatcher) checkReserved(ctx context.Context, c *check) (more bool, err error) {
	meters, next, err := d.Waits.ReservedMeters(ctx, c.cursor, reservedPage)
	if d.limiterHealth.Note(ctx, err) != nil {
		return false, err
	}
	for _, meter := range meters {
		repaired, err := d.Waits.RepairReserved(ctx, d.process, meter, d.core.GrantedLanes(meter))
		if d.limiterHealth.Note(ctx, err) != nil {
			return false, err
		}
		d.reconciler.found.repaired += repaired
	}
	c.cursor = next
	return next != 0, nil
}

// checkOrphans promotes denied jobs of this scope that have no record, so that they request permits
// again: the limiter's Redis has lost the records. It skips jobs whose put-backs are about to end,
// because they request permits soon anyway. Jobs that could not reach the limiter are among them,
// and an outage is no loss of records.
func (d *dispatcher) checkOrphans(ctx context.Context, c *check) (more bool, err error) {
	ids, next, err := d.DB.Denied(ctx, c.queue, time.Now().Add(extendBefore), time.Time{}, int(c.cursor))
	if d.queuesHealth.Note(ctx, err) != nil {
		return false, err
	}
	known, err := d.Waits.Known(ctx, jobIDs(c.queue, ids))
	if d.limiterHealth.Note(ctx, err) != nil {
		return false, err
	}
	var unknown, orphans []string
	for i, id := range ids {
		if !known[i] {
			unknown = append(unknown, id)
		}
	}
	scopes, err := d.DB.Fields(ctx, c.queue, asynqdb.FieldScope, unknown...)
	if d.queuesHealth.Note(ctx, err) != nil {
		return false, err
	}
	_, own := d.Waits.Scope()
	for i, scope := range scopes {
		if scope == own {
			orphans = append(orphans, unknown[i])
		}
	}
	states, err := d.promote(ctx, jobIDs(c.queue, orphans))
	if err != nil {
		return false, err
	}
	for _, state := range states {
		if state == fairqueue.StateMoved {
			d.reconciler.found.orphans++
			d.reconciler.jobMissing = true // the orphan's lane may be lost, too: checkJobs registers it again
		}
	}
	c.cursor = uint64(max(0, next-len(orphans))) // the orphans have left the set
	return next >= 0, nil
}

// extendPutBacks extends a queue's put-backs that end before c.before: to the present estimate of
// each job's wait, and at least to c.before. It skips granted jobs, because they are promoted.
func (d *dispatcher) extendPutBacks(ctx context.Context, c *check) (more bool, err error) {
	if !c.more {
		c.before = time.Now().Add(d.reconciler.extendInterval + extendBefore)
	}
	ids, next, err := d.DB.Denied(ctx, c.queue, time.Time{}, c.before, int(c.cursor))
	if d.queuesHealth.Note(ctx, err) != nil {
		return false, err
	}
	positions, err := d.Waits.Positions(ctx, jobIDs(c.queue, ids)...)
	if d.limiterHealth.Note(ctx, err) != nil {
		return false, err
	}
	later := map[string]time.Time{}
	for job, position := range positions {
		if !position.Granted {
			later[job.ID] = time.Now().Add(max(position.PutBack(), time.Until(c.before)))
		}
	}
	c.cursor = uint64(max(0, next-len(later))) // the extended put-backs end after c.before now, so they have left the list
	return next >= 0, d.queuesHealth.Note(ctx, d.DB.Postpone(ctx, c.queue, later))
}

func jobIDs(queue string, ids []string) []throttle.JobID {
	jobs := make([]throttle.JobID, len(ids))
	for i, id := range ids {
		jobs[i] = throttle.JobID{Queue: queue, ID: id}
	}
	return jobs
}
