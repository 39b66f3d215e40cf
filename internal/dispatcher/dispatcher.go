// Package dispatcher runs the loop that grants permits to the waiting jobs of a scope. Package
// internal/fairqueue decides which lane is next, and Redis grants the permits.
package dispatcher

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
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
	// heartbeat is the shortest regular interval between two lease renewals. With each renewal the
	// leader also reads new lanes, and changes whose notifications were lost.
	heartbeat = 250 * time.Millisecond
	// DefaultMaxHeartbeat is the MaxHeartbeat of dispatchers without a Spread.
	DefaultMaxHeartbeat = 5 * time.Second
	// LeaseMargin is added to the renewal interval to get the duration of the lease.
	LeaseMargin = 750 * time.Millisecond
	// wokenLease is the longest lease after a notification that needs the leader: see
	// lua/include/wake_leader.lua. A leader that lives renews it within a heartbeat.
	wokenLease = heartbeat + LeaseMargin
	// takeoverLease is the lease of a process that did not lead before, because it has to read the
	// lanes before it can renew the lease.
	takeoverLease = 2 * time.Second
	// busyTime is the time after a granted turn in which a leader renews its lease at each
	// heartbeat, because the next turn may be due sooner than the leader knows.
	busyTime = 5 * time.Second
	// takeoverSpread is the time within which waiting processes try, in a random order, to take the
	// lease of a leader that has died.
	takeoverSpread = 50 * time.Millisecond
	// handoverTime is the time that a leader leaves to the process for which it has stepped down.
	handoverTime = 200 * time.Millisecond
	// ErrorPause is the pause before a process calls Redis again after an error.
	ErrorPause = time.Second
	// turnsPerCall is the most turns that one call of Redis grants: about a millisecond of work.
	turnsPerCall = 64
	// PageSize is the maximum number of lanes or jobs read by one call.
	PageSize = 100
	// maxCalls is the maximum number of consecutive calls of one kind, so that the lease is renewed
	// in time.
	maxCalls = 20
	// roundInterval is the shortest interval between two rounds of the loop.
	roundInterval = 2 * time.Millisecond
	// grantInterval is the shortest interval between two rounds that give turns.
	grantInterval = 5 * time.Millisecond
	// slotsInterval is the shortest interval between two requests for the servers' free slots.
	slotsInterval = time.Second
)

// Config configures a dispatcher. All fields but the last two are required.
type Config struct {
	Waits             *waitdb.DB // limiter and its waiting jobs
	DB                asynqdb.DB // asynq's Redis
	Queues            []string   // of this process's servers
	Log               *slog.Logger
	LimiterHealth     *redishealth.Monitor // outages of the limiter's Redis
	QueuesHealth      *redishealth.Monitor // outages of asynq's Redis
	ReconcileInterval time.Duration        // between two passes over all waiting jobs
	MaxHeartbeat      time.Duration        // longest interval between two lease renewals while no turn is due
	Stats             *stats.Recorder
	// SlotsRequested is called when the leader asks the servers of these queues for their free
	// worker slots. If it is nil, this process does not answer.
	SlotsRequested func(queues []string)
	// Spread distributes the leadership of several scopes evenly among the processes. If it is nil,
	// the process that takes the lease first leads.
	Spread *Spread
}

// dispatcher gives the lanes of a scope their turns. Every process runs a dispatcher, and the one
// that holds the lease is the leader. The leader asks the core for the next turns, asks Redis to
// grant them, and moves granted jobs to the head of their queues.
//
// For a moment there may be two leaders. No limit is exceeded then, because the scripts check the
// limits for every grant. All that a leader knows is in Redis, too, so no job is forgotten if the
// leader dies. Notifications only let the leader read Redis sooner, so they may get lost.
//
// All methods are called by one goroutine.
type dispatcher struct {
	Config
	limiterHealth, queuesHealth redishealth.Watch

	process string
	core    *fairqueue.Core // nil while another process leads
	clock   clock
	epoch   string // random ID of the scope's data in Redis; it changes if Redis loses the data
	// lastLane is the number of the last lane that the core knows.
	lastLane int64
	// lastChange is the number of the last meter change that the core knows.
	lastChange int64
	// expectedChange is the number of the last meter change in Redis at the last heartbeat. Its
	// notification must arrive before the next heartbeat.
	expectedChange   int64
	subscribed       bool      // whether the subscription to notifications was ever established
	renewAt          time.Time // time to take or renew the lease
	leaseEnd         time.Time // the lease lasts at least until then, unless Redis loses it
	mustWaitUntil    time.Time // until then, this process does not try to take the lease
	nextWaitDeadline time.Time
	grantedAt        time.Time // time of the last turns
	lastGrant        time.Time // time of the last turn that granted a job
	slotsRequestedAt time.Time
	reconciler       reconciler
}

// clock estimates the time of Redis's clock from its last reply. It is never ahead of Redis's
// clock, because a reply takes time to arrive.
type clock struct {
	redis int64 // time in the last reply, Unix microseconds
	at    time.Time
}

func (c clock) now() int64 { return c.redis + time.Since(c.at).Microseconds() }

// local converts a time of Redis's clock to this process's clock. The core's "never" becomes a
// time centuries away.
func (c clock) local(us int64) time.Time {
	if us-c.redis > math.MaxInt64/1000 {
		return c.at.Add(math.MaxInt64)
	}
	return c.at.Add(time.Duration(us-c.redis) * time.Microsecond)
}

// Run gives turns until the context ends. Then it gives the lease back, so that another process
// takes over at once.
func Run(ctx context.Context, c Config) {
	d := &dispatcher{Config: c, limiterHealth: c.LimiterHealth.Watch(), queuesHealth: c.QueuesHealth.Watch(), process: uuid.NewString()}
	if c.Spread != nil {
		d.process = c.Spread.process
	}
	notifications := d.Waits.Notifications(ctx)
	for ctx.Err() == nil {
		begun := time.Now()
		next := d.round(ctx)
		if d.core != nil {
			d.Stats.Rounds.Observe(time.Since(begun))
		}
		d.Stats.IsLeader.Store(d.core != nil)
		d.sleep(ctx, notifications, begun.Add(roundInterval), next)
	}
	d.stepDown(ctx, "")
	d.Stats.IsLeader.Store(false)
}

// round does what is due, and returns the time of the next round. A leader whose lease may have ended
// renews it before it does more. After an error, the next round is
// ErrorPause later, or sooner if a notification arrives. The health monitors log outages, once
// each; round logs all other errors.
func (d *dispatcher) round(ctx context.Context) time.Time {
	var err error
	if !time.Now().Before(d.renewAt) || d.core != nil && !d.leads(0) {
		err = d.renewLease(ctx)
	}
	if err == nil && d.leads(0) {
		err = d.work(ctx)
	}
	if err == nil {
		return d.next()
	}
	if ctx.Err() == nil && redishealth.Unavailable(err) == nil {
		d.Log.Error("cannot grant permits to waiting jobs; trying again", "error", err)
	}
	d.renewAt = time.Now().Add(ErrorPause)
	return d.renewAt
}

// work carries out what the core decides until nothing is due. It takes expired grants back before
// it gives turns, so that their permits can be granted again in the same round. A step that finds
// that another process leads sets the core to nil.
func (d *dispatcher) work(ctx context.Context) error {
	for d.leads(0) && !time.Now().After(d.renewAt) {
		if err := errors.Join(d.expireWaits(ctx), d.expireGrants(ctx), d.giveTurns(ctx), d.promoteGranted(ctx)); err != nil {
			return err
		}
		if now := d.clock.now(); d.core == nil || d.core.Next(now) > now || time.Since(d.grantedAt) < grantInterval {
			break
		}
	}
	if !d.leads(0) {
		return nil
	}
	if queues := d.core.QueuesToReport(d.clock.now()); len(queues) > 0 && time.Since(d.slotsRequestedAt) >= slotsInterval {
		d.slotsRequestedAt = time.Now()
		if err := d.limiterHealth.Note(ctx, d.Waits.RequestSlots(ctx, queues)); err != nil {
			return err
		}
	}
	if err := d.publishShares(ctx, false); err != nil {
		return err
	}
	return d.reconcile(ctx)
}

// next returns the time of the next round.
func (d *dispatcher) next() time.Time {
	next := d.renewAt
	if d.core == nil {
		return next
	}
	if next = earlier(next, d.leaseEnd); !d.leads(0) {
		return next
	}
	now := d.clock.now()
	check := d.nextCheck().due()
	if check.Before(d.reconciler.restUntil) {
		check = d.reconciler.restUntil
	}
	due := []time.Time{d.clock.local(d.core.Next(now)), d.nextWaitDeadline, check}
	if len(d.core.QueuesToReport(now)) > 0 {
		due = append(due, d.slotsRequestedAt.Add(slotsInterval))
	}
	return slices.MinFunc(append(due, next), time.Time.Compare)
}

// leads reports whether this process may go on as the leader with the nth call of a kind, counted
// from 0. Further calls than the first wait until the lease is renewed if that is due. If the
// process was stopped for longer than its lease, none is made.
func (d *dispatcher) leads(n int) bool {
	until := d.leaseEnd
	if n > 0 {
		until = d.renewAt
	}
	return d.core != nil && !time.Now().After(until)
}

// earlier returns the earlier one of two times.
func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// sleep waits until next, or until a notification needs a round sooner. It never returns before
// earliest, so that permits which become free at almost the same time are granted in one batch. It
// handles all notifications that arrive in the meantime.
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
			if !open { // the limiter's client is closed
				notifications = nil
			} else if d.handle(ctx, n) {
				next = earliest
			}
		}
	}
}

// handle processes a notification, and reports whether a round is needed now. A process that is not
// the leader takes the lease at once in two cases: no process holds the lease and there is
// something to do, or the leader has stepped down for this process or for any. If the leader has
// named another process, this process waits for handoverTime.
//
// A notification that needs the leader has cut a long lease to wokenLease. So a leader renews it
// within a heartbeat, and other processes look at it when it may have ended.
func (d *dispatcher) handle(ctx context.Context, n waitdb.Notification) bool {
	now := time.Now()
	process, successor, _ := strings.Cut(n.Name, " ") // only for SteppedDown
	if n.Kind == waitdb.Reconnected {
		if d.subscribed { // Redis may have lost data since the core read them
			d.core = nil
			d.reconciler.restart()
		}
		d.subscribed = true
	}
	switch {
	case n.Kind.NeedsLeader() && d.core != nil:
		d.renewAt, d.leaseEnd = earlier(d.renewAt, now.Add(heartbeat)), earlier(d.leaseEnd, now.Add(wokenLease))
	case n.Kind.NeedsLeader() && d.mustWaitUntil.After(now.Add(wokenLease)):
		d.mustWaitUntil = now.Add(wokenLease)
		d.renewAt = d.mustWaitUntil.Add(rand.N(takeoverSpread))
		return true
	}
	switch {
	case n.Kind == waitdb.SteppedDown && process != d.process:
		d.mustWaitUntil = now
		if successor != "" && successor != d.process {
			d.mustWaitUntil = now.Add(handoverTime)
		}
		d.renewAt = d.mustWaitUntil
		return true
	case n.Kind == waitdb.Reconnected || n.Kind == waitdb.LaneAdded || n.Kind == waitdb.DeadlineAdded:
		if now.Before(d.mustWaitUntil) || (d.core != nil && n.Number > 0 && n.Number <= d.lastLane) {
			return false
		}
		if d.core != nil && n.Kind == waitdb.Reconnected {
			d.core.Changed(d.clock.now(), "")
		}
		d.renewAt = now
		return true
	case n.Kind == waitdb.DrainChanged:
		d.Stats.ReportSoon()
		return false
	case n.Kind == waitdb.SlotsRequested:
		if d.SlotsRequested != nil {
			d.SlotsRequested(strings.Split(n.Name, "\n"))
		}
		return false
	case d.core == nil:
		return false
	case n.Kind == waitdb.LeadRequested:
		if _, scope := d.Waits.Scope(); d.Spread != nil && d.Spread.yield(scope, n.Name, int(n.Number)) {
			d.stepDown(ctx, n.Name)
			d.mustWaitUntil = time.Now().Add(handoverTime)
			d.renewAt = d.mustWaitUntil
		}
		return true
	case n.Kind == waitdb.SlotsReported:
		server, report := n.Slots()
		d.core.SetSlots(d.clock.now(), server, report)
		return true
	case n.Kind == waitdb.WeightsChanged:
		d.reconciler.restart()
		return true
	case n.Kind == waitdb.JobArrived:
		d.core.Arrived(d.clock.now(), n.Name)
		if n.Number > 0 {
			d.core.ArrivedLate(d.clock.now(), n.Name)
		}
		return true
	case n.Kind == waitdb.MeterChanged || n.Kind == waitdb.LimitChanged:
		d.core.Changed(d.clock.now(), n.Name)
	}
	if n.Number > d.lastChange+1 { // the notification before this one was lost
		d.core.Changed(d.clock.now(), "")
	}
	d.lastChange = max(d.lastChange, n.Number)
	return true
}
