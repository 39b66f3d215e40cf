package scheduler

import (
	"context"
	"time"

	"github.com/headgate/headgate/internal/turns"
	"github.com/headgate/headgate/throttle"
)

// batches bounds what is done in a row: the lease must be renewed meanwhile.
const batches = 20

// grant has Redis try the turns that are due, a batch at a time, and tells those
// who were called at once. When Redis says that the lease is another's, this process
// knows nothing any more. Where the answer got lost the core is told so: the jobs
// may be called, and it asks Redis which are.
func (g *giver) grant(ctx context.Context) error {
	if time.Since(g.granted) < grantInterval {
		return nil
	}
	for range batches {
		if g.core == nil {
			return nil
		}
		list := g.core.Turns(g.clock.now(), batch)
		if len(list) == 0 {
			return nil
		}
		g.granted = time.Now()
		now, results, held, err := g.store.Grant(ctx, g.process, list)
		if g.limits.note(ctx, err) != nil {
			g.core.Tried(g.clock.now(), nil)
			return err
		}
		if !held {
			g.core, g.lead = nil, time.Now()
			return nil
		}
		g.clock = clock{now, time.Now()}
		g.core.Tried(now, results)
		if err := g.tell(ctx); err != nil {
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
func (g *giver) tell(ctx context.Context) error {
	for range batches {
		if g.core == nil {
			return nil
		}
		told := g.core.Tell(g.clock.now(), page)
		if len(told) == 0 {
			return nil
		}
		jobs := make([]job, len(told))
		for i, t := range told {
			jobs[i] = job{Queue: t.Queue, ID: t.ID}
		}
		fates, err := g.promote(ctx, jobs)
		if err != nil {
			return err
		}
		var active []turns.Told
		for i, t := range told {
			g.core.Fate(g.clock.now(), t, fates[i])
			if fates[i] == turns.Active {
				active = append(active, t)
			}
		}
		if err := g.shelve(ctx, active); err != nil {
			return err
		}
	}
	return nil
}

// shelve lets the lanes of jobs go on that a worker has taken, and that have not
// asked in time: it may have died with them.
func (g *giver) shelve(ctx context.Context, active []turns.Told) error {
	shelved, err := g.store.Shelve(ctx, active)
	if g.limits.note(ctx, err) != nil || shelved == 0 {
		return err
	}
	for _, t := range active {
		g.core.Came(g.clock.now(), t.Lane)
	}
	return nil
}

// promote moves jobs to the head of their queues, and has those forgotten that
// will not come. A process that cannot do that lets another one give turns. It
// returns the jobs' fates in their order; after an error some may have been moved.
func (g *giver) promote(ctx context.Context, jobs []job) ([]turns.Fate, error) {
	if len(jobs) == 0 {
		return nil, nil
	}
	fates, err := promote(ctx, g.db, jobs)
	if g.queues.note(ctx, err) != nil {
		g.resign(ctx)
		return nil, err
	}
	var lost []throttle.JobID
	for i, fate := range fates {
		if fate == turns.Done || fate == turns.Gone {
			lost = append(lost, jobs[i])
			g.upkeep.miss()
		}
	}
	return fates, g.forget(ctx, lost)
}

// recall takes back what is reserved for jobs that have not come in time.
func (g *giver) recall(ctx context.Context) error {
	for range batches {
		if g.core == nil {
			return nil
		}
		lanes := g.core.Recalls(g.clock.now(), page)
		if len(lanes) == 0 {
			return nil
		}
		if err := g.recallLanes(ctx, lanes, false); err != nil {
			return err
		}
	}
	return nil
}

// recallLanes does that for some lanes. After a takeover the core must learn of
// all called jobs, since whoever called them may not have told them.
func (g *giver) recallLanes(ctx context.Context, lanes []string, takeover bool) error {
	recalled, err := g.store.Recall(ctx, lanes)
	if g.limits.note(ctx, err) != nil {
		return err
	}
	for i, r := range recalled {
		if takeover {
			r.Overdue = append(r.Overdue, r.Expected...)
		}
		g.core.Recalled(g.clock.now(), lanes[i], r.Called, r.Overdue, r.Waiting > 0)
	}
	return nil
}

// settle writes where lanes take turns, and where newcomers may take again. Only
// meters whose state has changed since are written.
func (g *giver) settle(ctx context.Context) error {
	if g.core == nil {
		return nil
	}
	return g.write(ctx, g.core.Sharing())
}

// write does that for some meters. One at which a lane waits that this process has not
// heard of keeps its mark: seen says which it has. Where nobody has waited before, permits
// may have come back unheard since the meter was asked.
func (g *giver) write(ctx context.Context, sharing map[string]int) error {
	if len(sharing) == 0 {
		return nil
	}
	marked, err := g.store.Settle(ctx, g.process, g.seen, sharing)
	for _, meter := range marked {
		g.core.Changed(meter)
	}
	return g.limits.note(ctx, err)
}

// settleAll does that for all meters after a takeover, and takes back the marks
// of meters at which nobody waits any more.
func (g *giver) settleAll(ctx context.Context) error {
	marks, err := g.store.Marks(ctx)
	if g.limits.note(ctx, err) != nil {
		return err
	}
	sharing := g.core.Sharing()
	for _, meter := range marks {
		sharing[meter] += 0
	}
	return g.write(ctx, sharing)
}
