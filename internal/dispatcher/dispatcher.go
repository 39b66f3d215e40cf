// Package dispatcher gives the jobs that wait in a scope their turns: a loop around
// internal/fairqueue, which decides whose turn it is, and Redis, which admits.
package dispatcher

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/fairqueue"
	"github.com/headgate/headgate/internal/redishealth"
	"github.com/headgate/headgate/internal/stats"
	"github.com/headgate/headgate/internal/waitdb"
)

const (
	// The leader renews its lease, and reads what it may have missed, every heartbeat; or, if
	// nothing is due, when something is, and at least every MaxHeartbeat.
	heartbeat           = 500 * time.Millisecond
	DefaultMaxHeartbeat = 5 * time.Second
	// Grace is how much longer than until its next renewal a lease lives. If the leader dies,
	// another process takes over then, a standby later.
	LeaseMargin   = time.Second
	takeoverDelay = 200 * time.Millisecond
	// ErrorPause is how long a process leaves Redis alone after an error.
	ErrorPause = time.Second
	// batch bounds a call of Redis to about a millisecond.
	turnsPerCall = 64
	// PageSize is how many lanes or jobs are read in one call.
	PageSize = 100
	// batches bounds what is done in a row: the lease must be renewed meanwhile.
	maxCalls = 20
	// interval is the least time between two rounds, and grantInterval that between two in which
	// turns are given: longer is cheaper, shorter is sooner. Turns are given in advance, and so
	// together.
	roundInterval = 2 * time.Millisecond
	grantInterval = 5 * time.Millisecond
	// slotsInterval is how often servers of queues whose workers are busy are asked for free slots.
	slotsInterval = time.Second
	// weightsInterval is how often the weights of queues are read without a notification.
	weightsInterval = time.Minute
)

// A Config is what a dispatcher works with.
type Config struct {
	Waits             *waitdb.DB // the limiter, and the jobs that wait for its permits
	DB                asynqdb.DB // of the queues
	Log               *slog.Logger
	LimiterHealth     *redishealth.Monitor // of the limiter's Redis
	QueuesHealth      *redishealth.Monitor // of the queues' Redis
	ReconcileInterval time.Duration        // between two passes over all waiting jobs
	MaxHeartbeat      time.Duration        // between two heartbeats if nothing is due
	Stats             *stats.Recorder
	// SlotsRequested has this process's server report its free worker slots, if it serves one of
	// these queues.
	SlotsRequested func(queues []string)
}

// dispatcher gives the lanes of a scope their turns. Every process runs one, and the leader, which
// holds a lease, works: it has the core decide whose turn it is and Redis grant the turns, and
// moves granted jobs to the head of their queues.
//
// A leader can be late, die, or be two for a moment: only meters admit, so no mistake of it exceeds
// a limit. But it must not forget a job. So all that it knows is in Redis, too: lanes are numbered,
// and read from the last number that it knows. Notifications, which Redis may lose, only make it
// look sooner.
//
// All methods are called by one goroutine.
type dispatcher struct {
	Config
	limiterHealth, queuesHealth redishealth.Watch

	process string
	core    *fairqueue.Core // nil while another process leads
	clock   clock
	epoch   string // of the data that this process saw last
	// lastLane is the number of the last lane that the core knows, and lastChange that of the last
	// change to a meter. unheard is the number of a change without a notification at the last
	// heartbeat.
	lastLane, lastChange, expectedChange int64
	subscribed                           bool
	renewAt                              time.Time // when to take or renew the lease
	heldUntil                            time.Time // until when another process keeps it at least
	nextWaitDeadline                     time.Time // the next wait deadline
	weightsReadAt                        time.Time
	grantedAt                            time.Time // when turns were given last
	slotsRequestedAt                     time.Time
	reconciler                           reconciler
}

// clock tells Redis's time between its replies. It never runs ahead of Redis's clock, because
// replies take time to come.
type clock struct {
	redis int64 // what the last reply said, in microseconds
	at    time.Time
}

func (c clock) now() int64 { return c.redis + time.Since(c.at).Microseconds() }

// local is a moment of Redis's clock by this process's, and far off for the core's "never".
func (c clock) local(us int64) time.Time {
	if us-c.redis > math.MaxInt64/1000 {
		return c.at.Add(math.MaxInt64)
	}
	return c.at.Add(time.Duration(us-c.redis) * time.Microsecond)
}

// Run gives turns until the context ends. Then it gives the lease back, so that no second is
// unused.
func Run(ctx context.Context, c Config) {
	d := &dispatcher{Config: c, limiterHealth: c.LimiterHealth.Watch(), queuesHealth: c.QueuesHealth.Watch(), process: uuid.NewString()}
	notifications := d.Waits.Notifications(ctx)
	for ctx.Err() == nil {
		begun := time.Now()
		next := d.round(ctx)
		if d.core != nil {
			d.Stats.ObserveRound(time.Since(begun))
		}
		d.Stats.IsLeader.Store(d.core != nil)
		d.sleep(ctx, notifications, begun.Add(roundInterval), next)
	}
	d.stepDown(ctx)
	d.Stats.IsLeader.Store(false)
}

// round does what is due, and returns when there is more to do. After an error it leaves Redis
// alone for a while. Outages are logged by the monitors, once each, and all other errors here.
func (d *dispatcher) round(ctx context.Context) time.Time {
	var err error
	if !time.Now().Before(d.renewAt) {
		err = d.renewLease(ctx)
	}
	if err == nil && d.core != nil {
		err = d.work(ctx)
	}
	if err == nil {
		return d.next()
	}
	if ctx.Err() == nil && redishealth.Unreachable(err) == nil {
		d.Log.Error("waiting jobs cannot be given their turns; trying again", "error", err)
	}
	d.renewAt = time.Now().Add(ErrorPause)
	return d.renewAt
}

// work carries out the core's decisions until nothing is due. Permits that were taken back may be
// another job's at once, so grants expire before turns are given. The core can be gone after each
// step, if another process leads by then.
func (d *dispatcher) work(ctx context.Context) error {
	for !time.Now().After(d.renewAt) {
		if err := errors.Join(d.expireWaits(ctx), d.expireGrants(ctx), d.giveTurns(ctx), d.promoteGranted(ctx)); err != nil {
			return err
		}
		if now := d.clock.now(); d.core == nil || d.core.Next(now) > now || time.Since(d.grantedAt) < grantInterval {
			break
		}
	}
	if d.core == nil {
		return nil
	}
	if err := errors.Join(d.requestSlots(ctx), d.publishShares(ctx, d.core.Sharing())); err != nil {
		return err
	}
	return d.reconcile(ctx)
}

// requestSlots asks the servers of queues whose granted jobs come late.
func (d *dispatcher) requestSlots(ctx context.Context) error {
	queues := d.core.SlotsWanted(d.clock.now())
	if len(queues) == 0 || time.Since(d.slotsRequestedAt) < slotsInterval {
		return nil
	}
	d.slotsRequestedAt = time.Now()
	return d.limiterHealth.Note(ctx, d.Waits.RequestSlots(ctx, queues))
}

// next returns when there is more to do.
func (d *dispatcher) next() time.Time {
	next := d.renewAt
	if d.core == nil {
		return next
	}
	now := d.clock.now()
	due := []time.Time{d.clock.local(d.core.Next(now)), d.nextWaitDeadline, d.reconciler.due()}
	if len(d.core.SlotsWanted(now)) > 0 {
		due = append(due, d.slotsRequestedAt.Add(slotsInterval))
	}
	for _, at := range due {
		if at.Before(next) {
			next = at
		}
	}
	return next
}

// sleep waits until next, or until a notification tells of something to do before. It waits until
// earliest in any case, so that permits that appear together are given together, and takes all
// notifications that come meanwhile.
func (d *dispatcher) sleep(ctx context.Context, notifications <-chan waitdb.Notification, earliest, next time.Time) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		if next.Before(earliest) {
			next = earliest
		}
		timer.Reset(time.Until(next))
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			return
		case n, open := <-notifications:
			if !open { // there will be no more, as if the limiter's client is closed
				notifications = nil
			} else if d.handle(n) {
				next = earliest
			}
		}
	}
}

// handle takes a notification in, and reports whether there is something to do now. A process that
// does not lead hears of new lanes and jobs, and takes the lease at once if no process has it; and
// it hears that the leader has stepped down. A leader's own step down does not count: a process
// that cannot reach the queues leaves the lease to others.
func (d *dispatcher) handle(n waitdb.Notification) bool {
	now := time.Now()
	missed := n.Kind == waitdb.Reconnected || n.Kind == waitdb.TooMany
	if n.Kind == waitdb.Reconnected {
		if d.subscribed { // what this process knows may be of a Redis that is gone
			d.core = nil
			d.reconciler.restart()
		}
		d.subscribed = true
	}
	switch {
	case n.Kind == waitdb.SteppedDown && n.Name != d.process:
		d.heldUntil, d.renewAt = time.Time{}, now
		return true
	case missed || n.Kind == waitdb.LaneAdded || n.Kind == waitdb.DeadlineAdded:
		if now.Before(d.heldUntil) || (d.core != nil && n.Number > 0 && n.Number <= d.lastLane) {
			return false
		}
		if d.core != nil && missed {
			d.core.ChangedAll()
		}
		d.renewAt = now
		return true
	case n.Kind == waitdb.SlotsRequested:
		if d.SlotsRequested != nil {
			d.SlotsRequested(strings.Split(n.Name, "\n"))
		}
		return false
	case d.core == nil:
		return false
	case n.Kind == waitdb.SlotsReported:
		server, interval, queues := n.Slots()
		d.core.SetSlots(d.clock.now(), server, int(n.Number), interval, queues)
		return true
	case n.Kind == waitdb.WeightsChanged:
		d.weightsReadAt, d.renewAt = time.Time{}, now
		return true
	case n.Kind == waitdb.JobArrived:
		d.core.Arrived(d.clock.now(), n.Name)
	case n.Kind == waitdb.MeterChanged:
		d.core.Changed(n.Name)
	case n.Kind == waitdb.LimitChanged:
		d.core.ChangedLimit(n.Name)
	}
	if n.Number > d.lastChange+1 { // the one before got lost
		d.core.ChangedAll()
	}
	d.lastChange = max(d.lastChange, n.Number)
	return true
}
