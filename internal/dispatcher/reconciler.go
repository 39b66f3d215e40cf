package dispatcher

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/headgate/headgate/internal/fairqueue"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

const (
	// extendInterval is how often put-backs are extended; up to maxExtendInterval if no turn is due
	// before, since then no put-back ends before either.
	extendInterval    = 2 * time.Second
	maxExtendInterval = 30 * time.Second
	// extendBefore is how long before its end a put-back is extended, at least. Together with
	// extendInterval it is as long as a put-back outlasts the wait that was told: if that was
	// right, the job is granted before its put-back need be extended.
	extendBefore = 3 * time.Second
	// ReconcileInterval is how often all waiting jobs are compared with asynq's.
	DefaultReconcileInterval = time.Minute
	// soonAgain is how soon they are compared again after a granted job was gone: whoever deletes
	// one may have deleted all, and those behind must not wait for them.
	soonAgain = 5 * time.Second
	// The reconciler works for workFor at a time, and rests restFor times as long, but not longer
	// than extendInterval, since a step may wait for Redis: meanwhile no turns are given.
	workFor = 20 * time.Millisecond
	restFor = 3
)

// A check compares a part of what waits with what it should be, one step at a time, and repairs
// what is wrong. It reports whether there is more to do.
type check func(ctx context.Context) (more bool, err error)

// reconciler keeps the limiter and asynq in step. asynq is the truth: waiting jobs that an
// operator, a crash or a flushed Redis took away are forgotten, and orphans, denied jobs that no
// lane knows, are sent back to ask. What Redis keeps of waiting jobs is repaired. All that is done
// once a minute, in a pass of checks. Besides, put-backs of waiting jobs that are about to end are
// extended every few seconds, or those jobs would come without permits.
//
// A pass is no snapshot: what comes or goes meanwhile is left to the next. Since the same goroutine
// gives turns, there are pauses between the steps.
type reconciler struct {
	next      time.Time // when put-backs are to be extended
	queues    []string  // with waiting jobs
	extension extension
	pass      []check   // what is left of it
	passBegan time.Time // zero: one is due
	missed    bool      // a granted job was gone since then
	restUntil time.Time
	found     found
}

// found is what was wrong, to be logged at the end of a pass: whoever deletes a thousand jobs is
// told so once.
type found struct {
	forgotten, orphans int
	one                string // of the jobs that were forgotten
	repaired           int    // records, lanes and counts
}

// addQueue has the put-backs of a queue extended, from its first lane on.
func (r *reconciler) addQueue(queue string) {
	if i, found := slices.BinarySearch(r.queues, queue); !found {
		r.queues = slices.Insert(r.queues, i, queue)
	}
}

// missJob notes that a granted job was gone.
func (r *reconciler) missJob() {
	if !r.missed {
		r.missed, r.next = true, time.Now()
	}
}

// restart begins a new pass at once: Redis may know less than it did.
func (r *reconciler) restart() { r.pass, r.passBegan, r.next = nil, time.Time{}, time.Now() }

func (r *reconciler) isBusy() bool { return len(r.extension.rest) > 0 || len(r.pass) > 0 }

// due returns when there is something to do.
func (r *reconciler) due() time.Time {
	if r.isBusy() && r.restUntil.Before(r.next) {
		return r.restUntil
	}
	return r.next
}

// reconcile begins what is due, and goes on with it if it has rested.
func (d *dispatcher) reconcile(ctx context.Context) error {
	r, now := &d.reconciler, time.Now()
	pause := min(max(time.Until(d.clock.local(d.core.Next(d.clock.now()))), extendInterval), maxExtendInterval)
	if latest := now.Add(pause); r.next.After(latest) {
		r.next = latest
	}
	if !now.Before(r.next) {
		r.next = now.Add(pause)
		if len(r.extension.rest) == 0 {
			r.extension.begin(r.queues, now.Add(pause+extendBefore))
		}
		since := now.Sub(r.passBegan)
		if len(r.pass) == 0 && (since >= d.ReconcileInterval || r.missed && since >= soonAgain) {
			queues, err := d.DB.Queues(ctx)
			if d.queuesHealth.Note(ctx, err) != nil {
				return err
			}
			r.pass, r.passBegan, r.missed = d.checks(queues), now, false
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

// reconcileStep does the next step of both, so that neither keeps the other from its end.
func (d *dispatcher) reconcileStep(ctx context.Context) error {
	r := &d.reconciler
	if len(r.extension.rest) > 0 {
		if err := d.extend(ctx, &r.extension); err != nil {
			return err
		}
	}
	if len(r.pass) == 0 {
		return nil
	}
	more, err := r.pass[0](ctx)
	if err != nil {
		return err
	}
	if !more {
		if r.pass = r.pass[1:]; len(r.pass) == 0 {
			d.logFound()
		}
	}
	return nil
}

func (d *dispatcher) logFound() {
	f := &d.reconciler.found
	if f.forgotten > 0 {
		d.Log.Info("waiting jobs were deleted, archived or run by hand; their places are free", "jobs", f.forgotten, "one of them", f.one)
	}
	if f.orphans > 0 {
		d.Log.Warn("denied jobs were unknown to the limiter, and sent back to ask", "jobs", f.orphans)
	}
	if f.repaired > 0 {
		d.Log.Warn("what Redis keeps of the waiting jobs was not in order, and is again: was it changed by hand?", "records, lanes and counts", f.repaired)
	}
	*f = found{}
}

// checks are those of a pass.
func (d *dispatcher) checks(queues []string) []check {
	jobs, demand := d.checkJobs()
	checks := []check{jobs, demand, d.checkLanes(), d.checkReserved()}
	for _, queue := range queues {
		checks = append(checks, d.checkOrphans(queue))
	}
	return checks
}

// checkJobs forgets waiting jobs that asynq will not run any more, or that wait for something else
// under the same ID. A job that is just being moved is in one of the states that count as waiting
// at each moment. The second check corrects how many permits are wanted of meters if Redis has lost
// that. Jobs come and go meanwhile, so what Redis says before and after bounds what is right.
func (d *dispatcher) checkJobs() (jobs, demand check) {
	var cursor uint64
	var before map[string]string
	wanted, isComplete := map[string]int64{}, true
	jobs = func(ctx context.Context) (more bool, err error) {
		if before == nil {
			if before, err = d.Waits.DemandByMeter(ctx); d.limiterHealth.Note(ctx, err) != nil {
				return false, err
			}
		}
		found, next, repaired, err := d.Waits.RepairRecords(ctx, cursor, PageSize, wanted)
		if d.limiterHealth.Note(ctx, err) != nil {
			isComplete = false // some may be counted twice
			return false, err
		}
		cursor = next
		d.reconciler.found.repaired += repaired
		byQueue := map[string][]string{}
		for _, job := range found {
			byQueue[job.Queue] = append(byQueue[job.Queue], job.ID)
		}
		var lost []throttle.JobID
		for queue, ids := range byQueue {
			states, err := d.DB.States(ctx, queue, ids...)
			if d.queuesHealth.Note(ctx, err) != nil {
				return false, err
			}
			for i, state := range states {
				if !slices.Contains([]string{"retry", "pending", "active"}, state) {
					lost = append(lost, throttle.JobID{Queue: queue, ID: ids[i]})
				}
			}
		}
		return next != 0, d.forget(ctx, lost)
	}
	demand = func(ctx context.Context) (more bool, err error) {
		if !isComplete {
			return false, nil
		}
		after, err := d.Waits.DemandByMeter(ctx)
		if d.limiterHealth.Note(ctx, err) != nil {
			return false, err
		}
		for meter := range after {
			wanted[meter] += 0
		}
		var wrong []waitdb.Correction
		for meter, wanted := range wanted {
			was, errWas := strconv.ParseInt(cmp.Or(before[meter], "0"), 10, 64)
			is, errIs := strconv.ParseInt(cmp.Or(after[meter], "0"), 10, 64)
			if errWas != nil || errIs != nil || wanted < min(was, is) || wanted > max(was, is) {
				wrong = append(wrong, waitdb.Correction{Meter: meter, Read: cmp.Or(after[meter], "0"), Wanted: wanted})
			}
		}
		return false, d.limiterHealth.Note(ctx, d.Waits.RepairDemand(ctx, d.process, wrong))
	}
	return jobs, demand
}

// checkLanes tells the core of lanes that it does not know, as those that were lost in a failover.
// A name that no script has written is dropped.
func (d *dispatcher) checkLanes() check {
	var cursor uint64
	return func(ctx context.Context) (more bool, err error) {
		lanes, next, err := d.Waits.Lanes(ctx, cursor, PageSize)
		if d.limiterHealth.Note(ctx, err) != nil {
			return false, err
		}
		cursor = next
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
		return next != 0, d.readGrants(ctx, unknown)
	}
}

// checkReserved corrects what is reserved for granted jobs: of as many meters in a step as have few
// granted jobs together, since all of a meter's are counted at once.
func (d *dispatcher) checkReserved() check {
	var cursor uint64
	var meters []string
	isLast := false
	return func(ctx context.Context) (more bool, err error) {
		if len(meters) == 0 {
			if meters, cursor, err = d.Waits.Reserved(ctx, cursor, PageSize); d.limiterHealth.Note(ctx, err) != nil {
				return false, err
			}
			isLast = cursor == 0
		}
		granted, lanes := d.core.GrantedAt(meters), map[string]bool{}
		n, jobs := 0, 0
		for ; n < len(meters) && (n == 0 || jobs+granted[meters[n]].Jobs <= PageSize); n++ {
			jobs += granted[meters[n]].Jobs
			for _, lane := range granted[meters[n]].Lanes {
				lanes[lane] = true
			}
		}
		if n > 0 {
			wrong, err := d.Waits.RepairReserved(ctx, d.process, meters[:n], slices.Collect(maps.Keys(lanes)))
			if d.limiterHealth.Note(ctx, err) != nil {
				return false, err
			}
			d.reconciler.found.repaired += wrong
		}
		meters = meters[n:]
		return !isLast || len(meters) > 0, nil
	}
}

// checkOrphans sends denied jobs of this scope that no lane knows back to ask: the limiter's Redis
// lost them, or could not be asked. A job that is sent back leaves the page, so the next page
// begins that much sooner.
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
		scopes, err := d.DB.Scopes(ctx, queue, unknown...)
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
		offset = next - len(orphans)
		return next >= 0, nil
	}
}

// An extension extends the put-backs of waiting jobs that end before a moment, so that none comes
// early: a page of each queue in turn. It has an end, because jobs denied meanwhile are put back
// for five seconds at least, and so at last until later.
type extension struct {
	rest   []page // the next first
	before time.Time
}

// A page is the put-backs of a queue from an offset on.
type page struct {
	queue  string
	offset int
}

func (e *extension) begin(queues []string, before time.Time) {
	e.before = before
	for _, queue := range queues {
		e.rest = append(e.rest, page{queue, 0})
	}
}

// extend extends the put-backs of a page, to what each job would be told now, and at least to the
// moment. Granted jobs are left alone: they come, or their put-back is what brings them if the
// promotion got lost. It costs up to four round trips.
func (d *dispatcher) extend(ctx context.Context, e *extension) error {
	queue, offset := e.rest[0].queue, e.rest[0].offset
	ids, next, err := d.DB.Denied(ctx, queue, e.before, offset)
	if d.queuesHealth.Note(ctx, err) != nil {
		return err
	}
	positions, err := d.Waits.Positions(ctx, jobIDs(queue, ids)...)
	if d.limiterHealth.Note(ctx, err) != nil {
		return err
	}
	later := map[string]time.Time{}
	for job, position := range positions {
		if !position.Granted {
			at := time.Now().Add(position.PutBack())
			if at.Before(e.before) {
				at = e.before
			}
			later[job.ID] = at
		}
	}
	if err := d.queuesHealth.Note(ctx, d.DB.Postpone(ctx, queue, later)); err != nil {
		return err
	}
	e.rest = e.rest[1:]
	if next >= 0 {
		e.rest = append(e.rest, page{queue, next - len(later)}) // the extended ones are due no more
	}
	return nil
}

func jobIDs(queue string, ids []string) []throttle.JobID {
	jobs := make([]throttle.JobID, len(ids))
	for i, id := range ids {
		jobs[i] = throttle.JobID{Queue: queue, ID: id}
	}
	return jobs
}
