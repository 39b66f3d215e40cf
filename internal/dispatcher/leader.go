package dispatcher

import (
	"context"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/fairqueue"
	"github.com/headgate/headgate/internal/waitdb"
)

// renewLease acquires or renews the leader lease, and reads the lanes and changes that are new
// since the last renewal. A process that cannot reach the queues does not take the lease, because
// it could not promote jobs. If another process holds the lease, this process tries again when that
// lease ends.
//
// If the lease ended between two renewals or Redis has lost data, the core is built again from
// Redis.
func (d *dispatcher) renewLease(ctx context.Context) error {
	if d.core == nil {
		if err := d.queuesHealth.Note(ctx, d.DB.Redis.Ping(ctx).Err()); err != nil {
			return err
		}
		d.lastLane = 0
	}
	pause, began := d.renewalPause(), time.Now()
	lease := pause + LeaseMargin
	if d.core == nil {
		lease = takeoverLease
	}
	l, err := d.Waits.BecomeLeader(ctx, d.process, lease, d.lastLane, waitdb.NewEpoch())
	if d.limiterHealth.Note(ctx, err) != nil {
		return err
	}
	if d.Spread != nil {
		leader := l.Leader
		if l.Held {
			leader = d.process
		}
		_, scope := d.Waits.Scope()
		if wanted, led := d.Spread.observe(scope, leader); wanted { // if the request is lost, it is sent again when the lease ends
			d.limiterHealth.Note(ctx, d.Waits.RequestLead(ctx, d.process, led))
		}
	}
	now := time.Now()
	if !l.Held {
		d.core = nil
		d.mustWaitUntil = now.Add(l.RemainingLease)
		d.renewAt = d.mustWaitUntil.Add(rand.N(takeoverSpread))
		return nil
	}
	d.clock, d.leaseEnd = clock{l.Now, now}, began.Add(lease)
	if l.ReadAll || d.core == nil {
		err = d.takeOver(ctx, l)
	} else {
		err = d.readMissed(ctx, l, false)
	}
	d.renewAt = now.Add(pause)
	return err
}

// renewalPause returns the time until the next renewal. While no turn is due, renewals are rare, so
// that an idle scope costs Redis almost nothing.
func (d *dispatcher) renewalPause() time.Duration {
	if d.core == nil || time.Since(d.lastGrant) < busyTime {
		return heartbeat
	}
	return min(max(time.Until(d.clock.local(d.core.Next(d.clock.now()))), heartbeat), d.MaxHeartbeat)
}

// takeOver reads all lanes and their granted jobs. The granted jobs are promoted again, because the
// last leader may have died before it promoted them. If takeOver fails, the next heartbeat starts
// again.
func (d *dispatcher) takeOver(ctx context.Context, l waitdb.Leadership) error {
	d.core, d.lastLane, d.lastChange, d.expectedChange = fairqueue.New(), 0, l.Changes, l.Changes
	_, err := d.readWeights(ctx, nil)
	if err == nil {
		err = d.readMissed(ctx, l, true)
	}
	if err == nil {
		err = d.publishShares(ctx, true)
	}
	if err != nil {
		d.core = nil
	}
	return err
}

// readMissed passes the new lanes of l to the core, and reads the pages that follow. Each page
// after the first renews the lease, because reading 100,000 lanes may take longer than a lease
// lasts. If `all` is true, l begins with the first lane, and granted jobs are read, too.
//
// If the notification of a change has not arrived by the next heartbeat, it was lost. Which meter
// changed is then unknown, so the core discards what all meters last replied.
func (d *dispatcher) readMissed(ctx context.Context, l waitdb.Leadership, all bool) (err error) {
	for page, more := l, true; more; {
		var lanes []string
		for _, lane := range page.NewLanes {
			d.lastLane = max(d.lastLane, lane.Number)
			if fairqueue.IsLane(lane.Lane) { // other names are removed by the reconciler
				d.core.AddLane(lane.Lane, lane.Number)
				d.reconciler.addQueues(fairqueue.Queue(lane.Lane))
				lanes = append(lanes, lane.Lane)
			}
		}
		if all {
			if err := d.expireLanes(ctx, lanes, true); err != nil {
				return err
			}
		}
		if more = len(page.NewLanes) >= waitdb.LanesPage; more {
			if page, err = d.Waits.BecomeLeader(ctx, d.process, takeoverLease, d.lastLane, d.epoch); d.limiterHealth.Note(ctx, err) != nil {
				return err
			}
		}
	}
	if d.lastChange < d.expectedChange {
		d.core.Changed(d.clock.now(), "")
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

// readWeights reads the weights of queues. It is also a check of the reconciler, with one step.
func (d *dispatcher) readWeights(ctx context.Context, _ *check) (more bool, err error) {
	weights, err := d.Waits.Weights(ctx)
	if d.limiterHealth.Note(ctx, err) != nil {
		return false, err
	}
	d.core.SetWeights(weights)
	d.reconciler.addQueues(slices.Collect(maps.Keys(weights))...)
	return false, nil
}

// stepDownTimeout is how long a leader waits for Redis when it gives its lease back.
const stepDownTimeout = time.Second

// stepDown gives the lease back, so that another process takes over at once: the successor, or any
// process if successor is empty. A process without a core may still hold the lease.
func (d *dispatcher) stepDown(ctx context.Context, successor string) {
	d.core = nil
	d.logFound()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stepDownTimeout)
	defer cancel()
	d.limiterHealth.Note(ctx, d.Waits.StepDown(ctx, d.process, successor))
}

// publishShares writes to Redis each changed number of lanes that take turns at a meter. If `all`
// is true, it also writes 0 for contended meters at which no lane waits. If a meter becomes
// contended, the core discards the meter's replies, because changes of the meter caused no
// notification until now.
func (d *dispatcher) publishShares(ctx context.Context, all bool) error {
	sharing := d.core.Sharing(d.clock.now())
	if all {
		contended, err := d.Waits.Contended(ctx)
		if d.limiterHealth.Note(ctx, err) != nil {
			return err
		}
		for meter := range contended {
			sharing[meter] += 0
		}
	}
	if len(sharing) == 0 {
		return nil
	}
	contended, err := d.Waits.PublishShares(ctx, d.process, d.lastLane, sharing)
	for _, meter := range contended {
		d.core.Changed(d.clock.now(), meter)
	}
	return d.limiterHealth.Note(ctx, err)
}
