package dispatcher

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/fairqueue"
	"github.com/headgate/headgate/internal/waitdb"
)

// lead takes or renews the lease, and reads what this process has not heard of. A process that
// cannot reach the queues does not take the lease, because it could not promote jobs. A process
// that does not get it comes again when it has ended: none polls for it.
//
// If the lease ended between two renewals, another process may have led meanwhile, so what the core
// knows is void. So it is if Redis knows less than it did, as after a failover.
func (d *dispatcher) renewLease(ctx context.Context) error {
	if d.core == nil {
		if err := d.queuesHealth.Note(ctx, d.DB.Redis.Ping(ctx).Err()); err != nil {
			return err
		}
		d.lastLane = 0
	}
	// If nothing is due for long the lease is renewed seldom: an idle scope costs Redis next to
	// nothing.
	pause := heartbeat
	if d.core != nil {
		pause = min(max(time.Until(d.clock.local(d.core.Next(d.clock.now()))), heartbeat), d.MaxHeartbeat)
	}
	l, err := d.Waits.BecomeLeader(ctx, d.process, pause+LeaseMargin, d.lastLane, waitdb.NewEpoch())
	if d.limiterHealth.Note(ctx, err) != nil {
		return err
	}
	now := time.Now()
	if !l.Held {
		d.core = nil
		d.heldUntil = now.Add(l.RemainingLease)
		d.renewAt = now.Add(l.RemainingLease + takeoverDelay)
		return nil
	}
	d.clock = clock{l.Now, now}
	if l.ReadAll || d.core == nil {
		err = d.takeOver(ctx, l)
	} else {
		err = d.readMissed(ctx, l, false)
	}
	d.renewAt = now.Add(pause)
	return err
}

// takeOver reads what Redis keeps: all lanes, and which of their jobs are granted. Those are
// promoted again, since the leader before may have died before it did so. If a part cannot be read
// the process begins anew with the next heartbeat, because it would never hear of the rest.
func (d *dispatcher) takeOver(ctx context.Context, l waitdb.Leadership) error {
	d.core, d.lastLane, d.lastChange, d.expectedChange = fairqueue.New(), 0, l.Changes, l.Changes
	d.weightsReadAt = time.Time{}
	err := d.readMissed(ctx, l, true)
	if err == nil {
		err = d.publishAllShares(ctx)
	}
	if err != nil {
		d.core = nil
	}
	return err
}

// learn tells the core what it has not heard of, or all after a takeover. If the notification of a
// change has not come by the next heartbeat, it was lost. It is not known which meter it was about,
// so the core looks at all.
func (d *dispatcher) readMissed(ctx context.Context, l waitdb.Leadership, all bool) error {
	if err := d.readWeights(ctx); err != nil {
		return err
	}
	if err := d.addLanes(ctx, l, all); err != nil {
		return err
	}
	if d.lastChange < d.expectedChange {
		d.core.ChangedAll()
		d.lastChange = d.expectedChange
	}
	d.expectedChange = l.Changes
	if d.epoch != l.Epoch {
		d.epoch = l.Epoch
		d.reconciler.restart()
	}
	if l.NextDeadline == 0 {
		l.NextDeadline = math.MaxInt64
	}
	d.nextWaitDeadline = d.clock.local(l.NextDeadline)
	return nil
}

// readWeights reads how queues take turns: after a takeover, when a server has said so, and every
// minute, since notifications get lost.
func (d *dispatcher) readWeights(ctx context.Context) error {
	if time.Since(d.weightsReadAt) < weightsInterval {
		return nil
	}
	weights, err := d.Waits.Weights(ctx)
	if d.limiterHealth.Note(ctx, err) != nil {
		return err
	}
	d.core.SetWeights(weights)
	d.weightsReadAt = time.Now()
	return nil
}

// addLanes tells the core of new lanes, or of all lanes, whose jobs may be granted already. Each
// page but the first renews the lease, because reading 100,000 lanes may take longer than it lives.
func (d *dispatcher) addLanes(ctx context.Context, l waitdb.Leadership, all bool) error {
	for {
		var lanes []string
		for _, lane := range l.NewLanes {
			d.lastLane = max(d.lastLane, lane.Number)
			if fairqueue.IsLane(lane.Lane) { // else the reconciler drops it
				d.core.AddLane(lane.Lane, lane.Number)
				d.reconciler.addQueue(fairqueue.Queue(lane.Lane))
				lanes = append(lanes, lane.Lane)
			}
		}
		if all {
			if err := d.readGrants(ctx, lanes); err != nil {
				return err
			}
		}
		if len(l.NewLanes) < waitdb.LanesPage {
			return nil
		}
		var err error
		if l, err = d.Waits.BecomeLeader(ctx, d.process, heartbeat+LeaseMargin, d.lastLane, d.epoch); d.limiterHealth.Note(ctx, err) != nil {
			return err
		}
	}
}

// readGrants tells the core which jobs of lanes that it did not know are granted.
func (d *dispatcher) readGrants(ctx context.Context, lanes []string) error {
	for lanes := range slices.Chunk(lanes, PageSize) {
		if err := d.expireLanes(ctx, lanes, true); err != nil {
			return err
		}
	}
	return nil
}

// stepDown lets another process take over at once. A process that can reach the limiter but not the
// queues does so, too: jobs that it granted permits would not come for them. It may hold the lease
// without a core, if it has just lost its connection or could not read all lanes.
func (d *dispatcher) stepDown(ctx context.Context) {
	d.core = nil
	d.logFound()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	d.limiterHealth.Note(ctx, d.Waits.StepDown(ctx, d.process))
}

// publishShares writes how many lanes take turns at meters: where none does, newcomers may take
// again. A meter at which a lane waits that this process has not heard of stays contended. At a
// meter that was not contended before, permits may have come back unheard since it was asked.
func (d *dispatcher) publishShares(ctx context.Context, sharing map[string]int) error {
	if len(sharing) == 0 {
		return nil
	}
	contended, err := d.Waits.PublishShares(ctx, d.process, d.lastLane, sharing)
	for _, meter := range contended {
		d.core.Changed(meter)
	}
	return d.limiterHealth.Note(ctx, err)
}

// publishAllShares does so after a takeover, also for meters at which no lane waits any more.
func (d *dispatcher) publishAllShares(ctx context.Context) error {
	contended, err := d.Waits.Contended(ctx)
	if d.limiterHealth.Note(ctx, err) != nil {
		return err
	}
	sharing := d.core.Sharing()
	for meter := range contended {
		sharing[meter] += 0
	}
	return d.publishShares(ctx, sharing)
}
