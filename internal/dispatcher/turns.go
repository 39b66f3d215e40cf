package dispatcher

import (
	"context"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/fairqueue"
	"github.com/headgate/headgate/throttle"
)

// giveTurns lets Redis try the due turns, in batches, and promotes granted jobs at once. If a reply
// is lost, Redis may have granted jobs. The core then checks the lanes in Redis later. If another
// process leads by now, this process drops its core.
func (d *dispatcher) giveTurns(ctx context.Context) error {
	if time.Since(d.grantedAt) < grantInterval {
		return nil
	}
	for i := 0; i < maxCalls && d.leads(i); i++ {
		turns := d.core.Turns(d.clock.now(), turnsPerCall)
		if len(turns) == 0 {
			return nil
		}
		d.grantedAt = time.Now()
		now, results, held, err := d.Waits.Grant(ctx, d.process, turns)
		if d.limiterHealth.Note(ctx, err) != nil {
			d.core.ApplyResults(d.clock.now(), nil)
			return err
		}
		if !held {
			d.core, d.renewAt = nil, time.Now()
			return nil
		}
		d.clock = clock{now, time.Now()}
		d.core.ApplyResults(now, results)
		if slices.ContainsFunc(results, func(r fairqueue.Result) bool { return r.Outcome == fairqueue.Granted }) {
			d.lastGrant = time.Now()
		}
		if err := d.promoteGranted(ctx); err != nil {
			return err
		}
	}
	return nil
}

// promoteGranted moves granted jobs to the head of their asynq queues: jobs whose permits are now
// available, and jobs that were promoted before but have not started. Redis forgets the jobs that
// are gone. Then promoteGranted reports the state of each job to the core.
func (d *dispatcher) promoteGranted(ctx context.Context) error {
	for i := 0; i < maxCalls && d.leads(i); i++ {
		granted := d.core.ToPromote(d.clock.now(), PageSize)
		if len(granted) == 0 {
			return nil
		}
		jobs := make([]throttle.JobID, len(granted))
		for i, g := range granted {
			jobs[i] = throttle.JobID{Queue: g.Queue, ID: g.ID}
		}
		states, err := d.promote(ctx, jobs)
		if err != nil {
			return err
		}
		var active []fairqueue.GrantedJob
		for i, g := range granted {
			d.core.Promoted(d.clock.now(), g, states[i])
			if states[i] == fairqueue.StateActive {
				active = append(active, g)
			}
		}
		// If a worker took a job and died, the job will not request its permits. ExpireActive ends
		// the grants of such jobs, so that their lanes get turns again.
		// It does not say which jobs these are, so the core checks the lanes of all active jobs.
		expired, err := d.Waits.ExpireActive(ctx, active)
		if d.limiterHealth.Note(ctx, err) != nil {
			return err
		}
		for i := 0; i < len(active) && expired > 0; i++ {
			d.core.Arrived(d.clock.now(), active[i].Lane)
		}
	}
	return nil
}

// promote moves jobs to the head of their queues, and forgets jobs that no worker will take. It
// returns the states of the jobs in their order. If it cannot reach the queues, it steps down, so
// that another process leads. Some of the jobs may have been moved by then.
func (d *dispatcher) promote(ctx context.Context, jobs []throttle.JobID) ([]fairqueue.State, error) {
	if len(jobs) == 0 {
		return nil, nil
	}
	found, err := d.DB.Promote(ctx, jobs...)
	if d.queuesHealth.Note(ctx, err) != nil {
		d.stepDown(ctx, "")
		return nil, err
	}
	var lost []throttle.JobID
	states := make([]fairqueue.State, len(found))
	for i, text := range found {
		state := fairqueue.State(text)
		if states[i] = state; state == fairqueue.StateDone || state == fairqueue.StateGone {
			lost = append(lost, jobs[i])
			d.reconciler.jobMissing = true
		}
	}
	return states, d.forget(ctx, lost)
}

// forget removes the records of jobs that no worker will take.
func (d *dispatcher) forget(ctx context.Context, lost []throttle.JobID) error {
	forgotten, err := d.Waits.Forget(ctx, lost...)
	if forgotten > 0 {
		d.reconciler.found.forgotten += forgotten
		d.reconciler.found.example = lost[0].ID
	}
	return d.limiterHealth.Note(ctx, err)
}

// expireGrants takes back the permits of granted jobs that no worker has taken in time.
func (d *dispatcher) expireGrants(ctx context.Context) error {
	for i := 0; i < maxCalls && d.leads(i); i++ {
		lanes := d.core.ToExpire(d.clock.now(), PageSize)
		if len(lanes) == 0 {
			return nil
		}
		if err := d.expireLanes(ctx, lanes, false); err != nil {
			return err
		}
	}
	return nil
}

// expireLanes releases the expired grants of some lanes. If isNew is true, the core does not know
// the lanes yet. expireLanes then reports every job with a reservation as overdue, so that the core
// promotes the job, in case the previous leader did not.
func (d *dispatcher) expireLanes(ctx context.Context, lanes []string, isNew bool) error {
	for lanes := range slices.Chunk(lanes, PageSize) {
		expired, err := d.Waits.ExpireGrants(ctx, lanes)
		if d.limiterHealth.Note(ctx, err) != nil {
			return err
		}
		for i, r := range expired {
			if isNew {
				r.Overdue = append(r.Overdue, r.Reserved...)
			}
			d.core.Expired(d.clock.now(), lanes[i], r.Granted, r.Overdue, r.Waiting > 0)
		}
	}
	return nil
}

// expireWaits promotes jobs that have passed their wait deadline, so that a worker archives,
// drops or runs them. Redis removes such a job from its lane. Each later ExpireWaits returns the
// job again, until a worker has taken it and requested its permits.
func (d *dispatcher) expireWaits(ctx context.Context) error {
	for began := time.Now(); d.leads(0) && !time.Now().Before(d.nextWaitDeadline) && time.Since(began) <= workFor; {
		expired, next, err := d.Waits.ExpireWaits(ctx, PageSize)
		if d.limiterHealth.Note(ctx, err) != nil {
			return err
		}
		d.nextWaitDeadline = time.Now().Add(next) // not by d.clock: Redis's clock may have stepped back since the last reply
		if _, err := d.promote(ctx, expired); err != nil {
			return err
		}
	}
	return nil
}
