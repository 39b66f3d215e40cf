package waitdb_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/fairqueue"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// A dispatcher gives the lanes of a fixture their turns, as package scheduler does: the
// real core decides and the real scripts carry it out. But it works only when a
// test pumps, with the fixture's clock, and the jobs that it calls are promoted by
// no worker: they are the test's to answer.
type dispatcher struct {
	store   *waitdb.DB
	fixture *fixture
	process string

	core          *fairqueue.Core // nil while it does not give turns
	seen          int64
	changes       int64
	notifications <-chan waitdb.Notification
	silence       int64 // the number of the last notification of its own
	last          []string
	// batch is how many turns one call of Redis tries.
	batch int
	// fails, if set, is asked before and after each call of Redis. An error before
	// has the call not be made, one after it loses the answer; either way the
	// dispatcher forgets all that it knew, as a process that was killed.
	fails func(call string, made bool) error
	// ignores, if set, lets it miss a notification.
	ignores func(waitdb.Notification) bool
	// state is the result of a granted job that is promoted. The zero value means
	// that it is moved to the head of its queue.
	state func(fairqueue.GrantedJob) fairqueue.State
}

// promotedJob is a job that was moved to the head of its queue.
type promotedJob struct {
	throttle.JobID
	// Late: not because it has its turn, but because it has waited for as long
	// as it may.
	Late bool
}

// leaseTime is for how long a dispatcher that dies keeps others from giving turns.
const leaseTime = 1500 * time.Millisecond

func newDispatcher(s *fixture, process string) *dispatcher {
	d := &dispatcher{store: s.lanes, fixture: s, process: process, batch: 64}
	d.notifications = d.store.Notifications(s.ctx)
	<-d.notifications // it listens
	return d
}

// lives has what its heartbeats renew live on, while the clock jumps.
func (d *dispatcher) lives() {
	if d.core == nil || d.fixture.rdb.Get(background, hg("leader")).Val() != d.process {
		return
	}
	d.fixture.rdb.Persist(background, hg("leader"))
	d.fixture.rdb.Persist(background, hg("contended"))
}

// pump gives turns until nothing is due, and returns who is granted and how long
// it is till something is due again; never is negative. It reports false where
// another process gives turns, which it does for the life of its lease.
func (d *dispatcher) pump() (list []promotedJob, next time.Duration, held bool, err error) {
	defer func() {
		if err != nil {
			d.core = nil
		}
	}()
	lead, err := d.lead()
	if err != nil || !lead.Held {
		d.core = nil
		return nil, lead.RemainingLease, false, err
	}
	late, over, err := []throttle.JobID(nil), time.Duration(0), error(nil)
	err = d.call("late", func() error { late, over, err = d.store.ExpireWaits(background, 100); return err })
	for _, job := range late {
		list = append(list, promotedJob{job, true})
	}
	if err != nil {
		return list, 0, false, err
	}
	for range 1000 {
		promoted, err := d.work()
		list = append(list, promoted...)
		if err != nil || d.core == nil {
			return list, 0, false, err
		}
		if err := d.receive(); err != nil {
			return list, 0, true, err
		}
		if next := d.core.Next(d.now()); next > d.now() {
			if err := d.publishShares(); err != nil {
				return list, 0, true, err
			}
			if over < math.MaxInt64 {
				next = min(next, d.now()+over.Microseconds())
			}
			return list, d.until(next), true, nil
		}
	}
	return list, 0, true, fmt.Errorf("it is due again and again; the last turns were\n%s", strings.Join(d.last, "\n"))
}

func (d *dispatcher) now() int64 { return d.fixture.now.UnixMicro() }

func (d *dispatcher) until(us int64) time.Duration {
	if us == math.MaxInt64 {
		return -1
	}
	return time.Duration(us-d.now()) * time.Microsecond
}

// call makes a call of Redis, unless it fails or its answer gets lost.
func (d *dispatcher) call(name string, f func() error) error {
	if d.fails != nil {
		if err := d.fails(name, false); err != nil {
			return err
		}
	}
	if err := f(); err != nil {
		return err
	}
	if d.fails != nil {
		return d.fails(name, true)
	}
	return nil
}

// lead takes or renews the lease, and handles missed notifications.
func (d *dispatcher) lead() (lead waitdb.Leadership, err error) {
	if err := d.receive(); err != nil {
		return lead, err
	}
	if d.core == nil {
		d.seen = 0
	}
	read := func() error {
		lead, err = d.store.BecomeLeader(background, d.process, leaseTime, d.seen, "epoch")
		return err
	}
	if err = d.call("lead", read); err != nil || !lead.Held {
		return lead, err
	}
	fresh := d.core == nil || lead.ReadAll
	if fresh {
		d.core, d.seen, d.changes = fairqueue.New(), 0, lead.Changes
		weights, err := d.store.Weights(background)
		if err != nil {
			return lead, err
		}
		d.core.SetWeights(weights)
	}
	if d.changes < lead.Changes { // a notification got lost
		d.changes = lead.Changes
		d.core.ChangedLimit(d.now(), "")
	}
	for {
		if err = d.made(lead.NewLanes, fresh); err != nil || len(lead.NewLanes) < waitdb.LanesPage {
			break
		}
		if err = d.call("lead", read); err != nil {
			break
		}
	}
	return lead, err
}

// made adds lanes to the core that got their first job; and after a takeover
// which jobs of them were granted before it.
func (d *dispatcher) made(lanes []waitdb.NumberedLane, fresh bool) error {
	for _, lane := range lanes {
		d.core.AddLane(lane.Lane, lane.Number)
		d.seen = max(d.seen, lane.Number)
	}
	if !fresh {
		return nil
	}
	for lanes := range slices.Chunk(lanes, 100) {
		names := make([]string, len(lanes))
		for i, lane := range lanes {
			names[i] = lane.Lane
		}
		if err := d.expire(names, true); err != nil {
			return err
		}
	}
	return nil
}

// receive takes all notifications in that were published until now. That these are all it knows
// by a notification of its own.
func (d *dispatcher) receive() error {
	d.silence++
	if err := d.fixture.rdb.Publish(background, hg("wake"), fmt.Sprintf("silence %d", d.silence)).Err(); err != nil {
		return err
	}
	for notification := range d.notifications {
		if notification.Kind == "silence" && notification.Number == d.silence {
			break
		}
		if d.core == nil || d.ignores != nil && d.ignores(notification) {
			continue
		}
		switch notification.Kind {
		case waitdb.JobArrived:
			d.core.Arrived(d.now(), notification.Name)
		case waitdb.MeterChanged:
			d.core.Changed(d.now(), notification.Name)
		case waitdb.LimitChanged:
			d.core.ChangedLimit(d.now(), notification.Name)
		default:
			continue
		}
		d.changes = max(d.changes, notification.Number)
	}
	return nil
}

// work has the core's decisions carried out once.
func (d *dispatcher) work() (list []promotedJob, err error) {
	if lanes := d.core.ToExpire(d.now(), 100); len(lanes) > 0 {
		if err := d.expire(lanes, false); err != nil {
			return nil, err
		}
	}
	if err := d.grant(); err != nil || d.core == nil {
		return nil, err
	}
	for _, job := range d.core.ToPromote(d.now(), 100) {
		state := fairqueue.StateMoved
		if d.state != nil {
			state = d.state(job)
		}
		id := throttle.JobID{Queue: job.Queue, ID: job.ID}
		if state == fairqueue.StateMoved {
			list = append(list, promotedJob{id, false})
		}
		if state == fairqueue.StateGone || state == fairqueue.StateDone {
			if _, err := d.fixture.lanes.Forget(background, id); err != nil {
				return list, err
			}
		}
		d.core.Promoted(d.now(), job, state)
	}
	return list, nil
}

// grant has Redis try the turns that are due.
func (d *dispatcher) grant() error {
	list := d.core.Turns(d.now(), d.batch)
	if len(list) == 0 {
		return nil
	}
	var results []fairqueue.Result
	held := false
	err := d.call("grant", func() (err error) {
		_, results, held, err = d.store.Grant(background, d.process, list)
		return err
	})
	if err != nil {
		return err
	}
	if !held {
		d.core = nil
		return nil
	}
	d.remember(list, results)
	d.core.ApplyResults(d.now(), results)
	return nil
}

// remember keeps the result of the last turns, to apply them.
func (d *dispatcher) remember(list []fairqueue.Turn, results []fairqueue.Result) {
	for i, r := range results {
		d.last = append(d.last, fmt.Sprintf("%d %q held %v ahead %d: %+v", d.now(), list[i].Lane, list[i].Held, list[i].Advance, r))
	}
	d.last = slices.Delete(d.last, 0, max(0, len(d.last)-20))
}

// expire takes back what is reserved for jobs that have not arrived in time. After
// a takeover all granted jobs are promoted: the last leader may not have done it.
func (d *dispatcher) expire(lanes []string, takeover bool) error {
	var expired []waitdb.LaneGrants
	err := d.call("expire", func() (err error) {
		expired, err = d.store.ExpireGrants(background, lanes)
		return err
	})
	if err != nil {
		return err
	}
	for i, r := range expired {
		if takeover {
			r.Overdue = append(r.Overdue, r.Reserved...)
		}
		d.core.Expired(d.now(), lanes[i], r.Granted, r.Overdue, r.Waiting > 0)
	}
	return nil
}

// publishShares writes where lanes take turns, and where newcomers may take again.
func (d *dispatcher) publishShares() error {
	sharing := d.core.Sharing(d.now())
	if len(sharing) == 0 {
		return nil
	}
	return d.call("publish shares", func() error {
		marked, err := d.store.PublishShares(background, d.process, d.seen, sharing)
		for _, meter := range marked {
			d.core.Changed(d.now(), meter)
		}
		return err
	})
}

// hg is the name of a key of the fixture's scope.
func hg(name string) string { return "hg:{default}:" + name }

func (s *fixture) dispatcherOf() *dispatcher {
	if s.dispatcher == nil {
		s.dispatcher = newDispatcher(s, "dispatcher")
	}
	return s.dispatcher
}

// pump has the fixture's dispatcher call back all that can be granted now, and returns when
// it is due again.
func (s *fixture) pump(t redistest.TB) (ids []string, next time.Duration) {
	t.Helper()
	list, next, held, err := s.dispatcherOf().pump()
	if err != nil || !held {
		t.Fatalf("pump: held %t, %v", held, err)
	}
	for _, job := range list {
		ids = append(ids, job.ID)
	}
	return ids, next
}

// pumped is who a pump calls.
func (s *fixture) pumped(t redistest.TB) []string {
	t.Helper()
	ids, _ := s.pump(t)
	return ids
}
