package dispatcher

import (
	"context"
	"time"

	"github.com/headgate/headgate/internal/fairqueue"
	"github.com/headgate/headgate/throttle"
)

// batches bounds what is done in a row: the lease must be renewed meanwhile.
const batches = 20

// grant has Redis try the turns that are due, a batch at a time, and tells those
// who were called at once. When Redis says that the lease is another's, this process
// knows nothing any more. Where the answer got lost the core is told so: the jobs
// may be called, and it asks Redis which are.
func (d *dispatcher) grant(ctx context.Context) error {
	if time.Since(d.granted) < grantInterval {
		return nil
	}
	for range batches {
		if d.core == nil {
			return nil
		}
		list := d.core.Turns(d.clock.now(), batch)
		if len(list) == 0 {
			return nil
		}
		d.granted = time.Now()
		now, results, held, err := d.Waits.Grant(ctx, d.process, list)
		if d.limits.Note(ctx, err) != nil {
			d.core.Tried(d.clock.now(), nil)
			return err
		}
		if !held {
			d.core, d.lead = nil, time.Now()
			return nil
		}
		d.clock = clock{now, time.Now()}
		d.core.Tried(now, results)
		if err := d.tell(ctx); err != nil {
			return err
		}
	}
	return nil
}

// tell moves called jobs to the head of their queues, those whose permits exist
// now and those that were told and have not come. What became of each the core
// hears: a job that is gone frees its place, one that a worker has is on its way.
// Redis forgets those that are gone before the core hears of it, and gives their
// permits another turn.
func (d *dispatcher) tell(ctx context.Context) error {
	for range batches {
		if d.core == nil {
			return nil
		}
		told := d.core.ToPromote(d.clock.now(), PageSize)
		if len(told) == 0 {
			return nil
		}
		jobs := make([]throttle.JobID, len(told))
		for i, t := range told {
			jobs[i] = throttle.JobID{Queue: t.Queue, ID: t.ID}
		}
		fates, err := d.promote(ctx, jobs)
		if err != nil {
			return err
		}
		var active []fairqueue.GrantedJob
		for i, t := range told {
			d.core.Promoted(d.clock.now(), t, fates[i])
			if fates[i] == fairqueue.StateActive {
				active = append(active, t)
			}
		}
		if err := d.presumeDead(ctx, active); err != nil {
			return err
		}
	}
	return nil
}

// presumeDead lets the lanes of jobs go on that a worker has taken, and that have not
// asked in time: it may have died with them.
func (d *dispatcher) presumeDead(ctx context.Context, active []fairqueue.GrantedJob) error {
	presumed, err := d.Waits.ExpireActive(ctx, active)
	if d.limits.Note(ctx, err) != nil || presumed == 0 {
		return err
	}
	for _, t := range active {
		d.core.Arrived(d.clock.now(), t.Lane)
	}
	return nil
}

// promote moves jobs to the head of their queues, and has those forgotten that
// will not come. A process that cannot do that lets another one give turns. It
// returns the jobs' fates in their order; after an error some may have been moved.
func (d *dispatcher) promote(ctx context.Context, jobs []throttle.JobID) ([]fairqueue.State, error) {
	if len(jobs) == 0 {
		return nil, nil
	}
	fates, err := Promote(ctx, d.DB, jobs)
	if d.queues.Note(ctx, err) != nil {
		d.resign(ctx)
		return nil, err
	}
	var lost []throttle.JobID
	for i, fate := range fates {
		if fate == fairqueue.StateDone || fate == fairqueue.StateGone {
			lost = append(lost, jobs[i])
			d.upkeep.miss()
		}
	}
	return fates, d.forget(ctx, lost)
}

// forget drops jobs that will not come.
func (d *dispatcher) forget(ctx context.Context, lost []throttle.JobID) error {
	forgotten, err := d.Waits.Forget(ctx, lost...)
	if forgotten > 0 {
		d.upkeep.found.forgotten += forgotten
		d.upkeep.found.one = lost[0].ID
	}
	return d.limits.Note(ctx, err)
}
