package dispatcher

import (
	"context"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/fairqueue"
	"github.com/headgate/headgate/internal/waitdb"
)

// takeLead takes or renews the lease, and hears what it has not heard. A process
// that cannot reach the queues does not take it: it could not call anybody.
//
// The lease outlives the next renewal by grace, and whoever does not get it comes
// again a standby after its end: nobody polls for it. A lease that ended between two
// renewals is taken anew: somebody else may have given turns meanwhile, so what the
// core knows is void. So it is where Redis knows less than it did, as after a failover.
func (d *dispatcher) takeLead(ctx context.Context) error {
	if d.core == nil {
		if err := d.queues.Note(ctx, d.DB.Redis.Ping(ctx).Err()); err != nil {
			return err
		}
	}
	if d.core == nil {
		d.seen = 0
	}
	pace := d.pace()
	lead, err := d.Waits.BecomeLeader(ctx, d.process, pace+Grace, d.seen, waitdb.NewEpoch())
	if d.limits.Note(ctx, err) != nil {
		return err
	}
	now := time.Now()
	if !lead.Held {
		d.core = nil
		d.taken = now.Add(lead.Until)
		d.lead = now.Add(lead.Until + standby)
		return nil
	}
	d.clock = clock{lead.Now, now}
	if lead.Fresh || d.core == nil {
		err = d.takeOver(ctx, lead)
	} else {
		err = d.learn(ctx, lead, false)
	}
	d.lead = now.Add(pace)
	return err
}

// takeOver begins with what Redis keeps, whoever left it there: all lanes, and which
// of their jobs were called. Those are told again, since the one before may have
// died before it did. Where a part cannot be read it begins anew with the next
// heartbeat: half of the lanes would be worse than none.
func (d *dispatcher) takeOver(ctx context.Context, lead waitdb.Leadership) error {
	d.core, d.seen, d.changes, d.missed = fairqueue.New(), 0, lead.Changes, lead.Changes
	d.weighed = time.Time{}
	err := d.learn(ctx, lead, true)
	if err == nil {
		err = d.publishAllShares(ctx)
	}
	if err != nil {
		d.core = nil // what it was not told it would never hear of
	}
	return err
}

// weighEach is how often it is read how queues take turns where nobody says that it has changed.
const weighEach = time.Minute

// weigh tells the core how queues take turns: after a takeover, when a server says so, and
// each minute, for words get lost.
func (d *dispatcher) weigh(ctx context.Context) error {
	if time.Since(d.weighed) < weighEach {
		return nil
	}
	weights, err := d.Waits.Weights(ctx)
	if d.limits.Note(ctx, err) != nil {
		return err
	}
	d.core.SetWeights(weights)
	d.weighed = time.Now()
	return nil
}

// pace is how long from now the lease is to be renewed. Where no turn is due for
// long that is seldom: an idle scope costs Redis next to nothing.
func (d *dispatcher) pace() time.Duration {
	if d.core == nil {
		return heartbeat
	}
	return min(max(time.Until(d.clock.local(d.core.Next(d.clock.now()))), heartbeat), d.MaxHeartbeat)
}

// learn tells the core what it has not heard of; after a takeover that is all. A
// change whose word has not come by the next heartbeat is taken for lost: which
// meter it was nobody knows, so the core looks at all of them.
func (d *dispatcher) learn(ctx context.Context, lead waitdb.Leadership, all bool) error {
	if err := d.weigh(ctx); err != nil {
		return err
	}
	if err := d.made(ctx, lead, all); err != nil {
		return err
	}
	if d.changes < d.missed { // since a heartbeat: the word got lost
		d.core.ChangedAll()
		d.changes = d.missed
	}
	d.missed = lead.Changes
	if d.epoch != lead.Epoch {
		d.epoch = lead.Epoch
		d.upkeep.lost()
	}
	d.patience(lead.NextDeadline)
	return nil
}

// made tells the core of new lanes, page by page; or of all lanes, of which jobs
// may be called already. Each page but the first renews the lease, for reading a
// hundred thousand lanes may take longer than it lives.
func (d *dispatcher) made(ctx context.Context, lead waitdb.Leadership, all bool) error {
	for {
		var lanes []string
		for _, lane := range lead.NewLanes {
			d.seen = max(d.seen, lane.Number)
			if fairqueue.IsLane(lane.Lane) { // else a pass forgets it
				d.core.AddLane(lane.Lane, lane.Number)
				d.upkeep.add(fairqueue.Queue(lane.Lane))
				lanes = append(lanes, lane.Lane)
			}
		}
		if all {
			if err := d.find(ctx, lanes); err != nil {
				return err
			}
		}
		if len(lead.NewLanes) < waitdb.LanesPage {
			return nil
		}
		var err error
		if lead, err = d.Waits.BecomeLeader(ctx, d.process, heartbeat+Grace, d.seen, d.epoch); d.limits.Note(ctx, err) != nil {
			return err
		}
	}
}

// find tells the core which jobs of lanes that it did not know are called.
func (d *dispatcher) find(ctx context.Context, lanes []string) error {
	for lanes := range slices.Chunk(lanes, PageSize) {
		if err := d.expireLanes(ctx, lanes, true); err != nil {
			return err
		}
	}
	return nil
}

// resign lets another process take over at once. A process that can reach the limiter but
// not the queues does so, too: jobs that it granted permits would not come for them. The
// lease can be this process's although it has no core: it has just lost its connection, or
// could not read all lanes.
func (d *dispatcher) resign(ctx context.Context) {
	d.core = nil
	d.tellFound()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	d.limits.Note(ctx, d.Waits.StepDown(ctx, d.process))
}
