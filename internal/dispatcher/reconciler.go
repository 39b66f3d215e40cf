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
	// extendBefore is the shortest time before its end at which a put-back is extended. A put-back
	// outlasts the estimated wait by extendBefore and extendInterval, so it needs no extension if the
	// estimate was right.
	extendBefore = 3 * time.Second
	// DefaultReconcileInterval is the interval between two passes of the reconciler.
	DefaultReconcileInterval = time.Minute
	// earlyPass is the shortest interval between two passes if a granted job was missing: if an
	// operator has deleted it, other jobs may have been deleted, too.
	earlyPass = 5 * time.Second
	// The reconciler works for workFor at a time, because no turns are given meanwhile. Then it
	// rests restFor times as long as it worked. If a step had to wait long for Redis, it rests
	// extendInterval.
	workFor = 20 * time.Millisecond
	restFor = 3
)

// A check compares some waiting jobs with asynq or with what Redis counts, and repairs what is wrong.
// It works one step at a time, and reports whether there are more steps. After an error the step is
// repeated.
type check func(ctx context.Context) (more bool, err error)

// reconciler keeps waiting jobs consistent with asynq, whose data are right. Once a minute, in a
// pass, it forgets waiting jobs that asynq does not have any more, promotes denied jobs without a
// record, so that they request permits again, and repairs damaged data. Every few seconds it
// extends the put-backs of waiting jobs that are about to end, because those jobs would come back
// without permits.
//
// A pass is no snapshot: it leaves what changes meanwhile to the next pass.
type reconciler struct {
	next      time.Time // time of the next extension of put-backs
	queues    []string  // with waiting jobs
	extension []check   // remaining checks of put-backs
	pass      []check   // remaining checks of the pass
	passBegan time.Time // zero if a pass is due
	missed    bool      // a granted job was missing since passBegan
	restUntil time.Time
	found     found
}

// found counts what was wrong, for one log line of each kind in a pass.
type found struct {
	forgotten, orphans int
	one                string // one of the forgotten jobs
	repaired           int    // records, lanes and counts
}

// restart begins a new pass at once, because Redis may have lost data.
func (r *reconciler) restart() { r.pass, r.passBegan, r.next = nil, time.Time{}, time.Now() }

func (r *reconciler) isBusy() bool { return len(r.extension)+len(r.pass) > 0 }

// due returns the time of the next step.
func (r *reconciler) due() time.Time {
	if r.isBusy() && r.restUntil.Before(r.next) {
		return r.restUntil
	}
	return r.next
}

// reconcile begins what is due, and continues it unless the reconciler rests.
func (d *dispatcher) reconcile(ctx context.Context) error {
	r, now := &d.reconciler, time.Now()
	pause := min(max(time.Until(d.clock.local(d.core.Next(d.clock.now()))), extendInterval), maxExtendInterval)
	if latest := now.Add(pause); r.next.After(latest) {
		r.next = latest
	}
	if !now.Before(r.next) {
		r.next = now.Add(pause)
		if len(r.extension) == 0 {
			for _, queue := range r.queues {
				r.extension = append(r.extension, d.extendPutBacks(queue, now.Add(pause+extendBefore)))
			}
		}
		since := now.Sub(r.passBegan)
		if len(r.pass) == 0 && (since >= d.ReconcileInterval || r.missed && since >= earlyPass) {
			r.pass, r.passBegan, r.missed = []check{d.checkJobs(), d.checkLanes(), d.checkReserved()}, now, false
			// Other queues can be on other nodes of a cluster, whose outages must not delay this scope.
			queues := slices.Concat(d.Queues, d.weighted)
			slices.Sort(queues)
			for _, queue := range slices.Compact(queues) {
				r.pass = append(r.pass, d.checkOrphans(queue))
			}
		}
		if due := r.passBegan.Add(d.ReconcileInterval); due.After(now) && due.Before(r.next) {
			r.next = due
		}
	}
	if now.Before(r.restUntil) {
		return nil
	}
	for r.isBusy() && time.Since(now) < workFor {
		if err := d.reconcileStep(ctx); err != nil {
			return err
		}
	}
	worked := time.Since(now)
	r.restUntil = now.Add(worked + min(restFor*worked, extendInterval))
	return nil
}

// reconcileStep does one step of the extension and one of the pass, so that neither delays the other.
func (d *dispatcher) reconcileStep(ctx context.Context) (err error) {
	r := &d.reconciler
	if r.extension, err = step(ctx, r.extension); err != nil || len(r.pass) == 0 {
		return err
	}
	if r.pass, err = step(ctx, r.pass); err == nil && len(r.pass) == 0 {
		d.logFound()
	}
	return err
}

// step does one step of the first check, and returns the remaining checks. A check with more steps goes
// to the end, so that a large queue does not delay the others.
func step(ctx context.Context, checks []check) ([]check, error) {
	if len(checks) == 0 {
		return nil, nil
	}
	more, err := checks[0](ctx)
	if err != nil {
		return checks, err
	}
	if more {
		return append(checks[1:], checks[0]), nil
	}
	return checks[1:], nil
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

// checkJobs forgets waiting jobs that asynq will not run any more, or whose ID belongs to another job
// by now. Then it corrects the demand at meters. Jobs join and leave their lanes meanwhile, so any
// number between what Redis has counted before and after is right.
func (d *dispatcher) checkJobs() check {
	var cursor uint64
	var before, wanted map[string]int64
	return func(ctx context.Context) (more bool, err error) {
		defer func() {
			if err != nil {
				before = nil // begin again
			}
		}()
		if before == nil {
			cursor, wanted = 0, map[string]int64{}
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

// checkLanes adds lanes that the core does not know, such as lanes that a failover has lost. It drops
// lanes with invalid names.
func (d *dispatcher) checkLanes() check {
	offset := 0
	return func(ctx context.Context) (more bool, err error) {
		lanes, err := d.Waits.LaneNames(ctx, offset, PageSize)
		if d.limiterHealth.Note(ctx, err) != nil {
			return false, err
		}
		offset += len(lanes)
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
		return len(lanes) == PageSize, d.readGrants(ctx, unknown)
	}
}

// checkReserved corrects the number of permits that are reserved for granted jobs, one meter a step.
func (d *dispatcher) checkReserved() check {
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
// again. The limiter's Redis has lost the records, or could not be reached.
func (d *dispatcher) checkOrphans(queue string) check {
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
		offset = next - len(orphans) // the orphans have left the set
		return next >= 0, nil
	}
}

// extendPutBacks extends the put-backs of a queue's waiting jobs that end before a time: to the
// present estimate of each job's wait, and at least to that time. It skips granted jobs: they are
// promoted, or come back at the end of their put-back if the promotion was lost. It takes up to
// four round trips a page.
func (d *dispatcher) extendPutBacks(queue string, before time.Time) check {
	offset := 0
	return func(ctx context.Context) (more bool, err error) {
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
		offset = next - len(later) // these put-backs end after that time now
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
