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

// A comparison is one pass over all that wait: first the limiter's tickets, whose
// jobs asynq may not have, its lanes, and what is reserved of meters for called jobs;
// then asynq's denied jobs, queue by queue, which may have no ticket. It is no snapshot:
// what comes or goes meanwhile is left to the next.
type comparison struct {
	tickets bool     // whether those are still to be looked at
	lanes   bool     // the same of the lanes
	counts  bool     // and of what is reserved
	meters  []string // of which that is to be counted next
	cursor  uint64   // in the first of these
	queues  []string // whose denied jobs are still to be looked at
	offset  int      // in the first of them
	// demand is what Redis said before the tickets are looked at, wanted what they say. wants is
	// whether the two are still to be compared.
	demand map[string]string
	wanted map[string]int64
	wants  bool
}

// underway reports whether anything is left to look at.
func (c *comparison) underway() bool {
	return c.tickets || c.wants || c.lanes || c.reserved() || len(c.queues) > 0
}

// reserved reports whether anything is left of what is reserved.
func (c *comparison) reserved() bool { return c.counts || len(c.meters) > 0 }

// forgetLost forgets the tickets of jobs that asynq will not run any more, or
// that wait for something else under the same ID. A job that is just being moved
// is in one of the states that count as waiting at each moment.
func (d *dispatcher) forgetLost(ctx context.Context, c *comparison) (err error) {
	if c.demand == nil {
		if c.demand, err = d.Waits.DemandByMeter(ctx); d.limits.Note(ctx, err) != nil {
			return err
		}
	}
	jobs, next, mended, err := d.Waits.RepairRecords(ctx, c.cursor, PageSize, c.wanted)
	if d.limits.Note(ctx, err) != nil {
		c.wants = false // some may be counted twice
		return err
	}
	c.cursor, c.tickets = next, next != 0
	d.upkeep.found.mended += mended
	byQueue := map[string][]string{}
	for _, job := range jobs {
		byQueue[job.Queue] = append(byQueue[job.Queue], job.ID)
	}
	var lost []throttle.JobID
	for queue, ids := range byQueue {
		states, err := d.DB.States(ctx, queue, ids...)
		if d.queues.Note(ctx, err) != nil {
			return err
		}
		for i, state := range states {
			if !slices.Contains([]string{"retry", "pending", "active"}, state) {
				lost = append(lost, throttle.JobID{Queue: queue, ID: ids[i]})
			}
		}
	}
	return d.forget(ctx, lost)
}

// correctDemand corrects what is wanted of meters, as the estimates have it, where Redis has lost
// it. Jobs come and go during the pass, so what Redis said before it and says after it bound what
// is right.
func (d *dispatcher) correctDemand(ctx context.Context, c *comparison) error {
	after, err := d.Waits.DemandByMeter(ctx)
	if d.limits.Note(ctx, err) != nil {
		return err
	}
	for meter := range after {
		c.wanted[meter] += 0
	}
	var wrong []waitdb.Correction
	for meter, wanted := range c.wanted {
		before, errBefore := strconv.ParseInt(cmp.Or(c.demand[meter], "0"), 10, 64)
		now, errNow := strconv.ParseInt(cmp.Or(after[meter], "0"), 10, 64)
		if errBefore != nil || errNow != nil || wanted < min(before, now) || wanted > max(before, now) {
			wrong = append(wrong, waitdb.Correction{Meter: meter, Read: cmp.Or(after[meter], "0"), Wanted: wanted})
		}
	}
	c.wants = false
	return d.limits.Note(ctx, d.Waits.RepairDemand(ctx, d.process, wrong))
}

// findLanes tells the core of lanes that it does not know, as those whose last calls
// were lost in a failover. Of one that is empty Redis forgets the name.
func (d *dispatcher) findLanes(ctx context.Context, c *comparison) error {
	lanes, next, err := d.Waits.Lanes(ctx, c.cursor, PageSize)
	if d.limits.Note(ctx, err) != nil {
		return err
	}
	c.cursor, c.lanes = next, next != 0
	var unknown []string
	for _, lane := range lanes {
		switch {
		case d.core.HasLane(lane):
		case fairqueue.IsLane(lane):
			unknown = append(unknown, lane)
		default: // no script has written that
			d.upkeep.found.mended++
			if err := d.limits.Note(ctx, d.Waits.DropLane(ctx, lane)); err != nil {
				return err
			}
		}
	}
	return d.find(ctx, unknown)
}

// recount puts right what is reserved for called jobs, where anything else is: of as many
// meters at a time as have few called jobs together, since all of a meter's are counted
// in one step.
func (d *dispatcher) recount(ctx context.Context, c *comparison) error {
	if len(c.meters) == 0 {
		meters, next, err := d.Waits.Reserved(ctx, c.cursor, PageSize)
		if d.limits.Note(ctx, err) != nil {
			return err
		}
		c.meters, c.cursor, c.counts = meters, next, next != 0
	}
	called, lanes := d.core.GrantedAt(c.meters), map[string]bool{}
	n, jobs := 0, 0
	for ; n < len(c.meters) && (n == 0 || jobs+called[c.meters[n]].Jobs <= PageSize); n++ {
		jobs += called[c.meters[n]].Jobs
		for _, lane := range called[c.meters[n]].Lanes {
			lanes[lane] = true
		}
	}
	if n == 0 {
		return nil
	}
	wrong, err := d.Waits.RepairReserved(ctx, d.process, c.meters[:n], slices.Collect(maps.Keys(lanes)))
	if d.limits.Note(ctx, err) != nil {
		return err
	}
	c.meters = c.meters[n:]
	d.upkeep.found.mended += wrong
	return nil
}

// findStrays sends denied jobs of this scope that no lane knows back to ask: the
// limiter's Redis lost them, or could not be asked.
// A job that is sent back leaves the page, so the next begins that much sooner.
func (d *dispatcher) findStrays(ctx context.Context, c *comparison) error {
	queue := c.queues[0]
	ids, next, err := d.DB.Denied(ctx, queue, time.Time{}, c.offset)
	if d.queues.Note(ctx, err) != nil {
		return err
	}
	known, err := d.Waits.Known(ctx, queue, ids)
	if d.limits.Note(ctx, err) != nil {
		return err
	}
	var unknown []string
	for i, id := range ids {
		if !known[i] {
			unknown = append(unknown, id)
		}
	}
	scopes, err := d.DB.Scopes(ctx, queue, unknown...)
	if d.queues.Note(ctx, err) != nil {
		return err
	}
	_, own := d.Waits.Scope()
	var strays []throttle.JobID
	for i, scope := range scopes {
		if scope == own {
			strays = append(strays, throttle.JobID{Queue: queue, ID: unknown[i]})
		}
	}
	fates, err := d.promote(ctx, strays)
	if err != nil {
		return err
	}
	for _, fate := range fates {
		if fate == fairqueue.StateMoved {
			d.upkeep.found.sent++
		}
	}
	if c.offset = next - len(strays); next < 0 {
		c.queues, c.offset = c.queues[1:], 0
	}
	return nil
}
