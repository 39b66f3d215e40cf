package waitdb_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/fairqueue"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// A dispatcher gives the lanes of a fixture their turns, as package dispatcher does: the real core
// decides, and the real scripts carry it out. But it works only when a test pumps, by the fixture's
// clock, and no worker takes the jobs that it promotes: the test acquires for them.
type dispatcher struct {
	*fixture
	process string

	core          *fairqueue.Core // nil while it does not lead
	seen, changes int64
	notifications <-chan waitdb.Notification
	silence       int64 // number of the last notification of its own
	// state is the result of a granted job that is promoted. If it is nil, each job is moved to the
	// head of its queue.
	state func(fairqueue.GrantedJob) fairqueue.State
}

// leaseTime is the time for which a dispatcher that dies keeps others from leading.
const leaseTime = 1500 * time.Millisecond

func newDispatcher(s *fixture, process string) *dispatcher {
	d := &dispatcher{fixture: s, process: process, notifications: s.lanes.Notifications(s.ctx)}
	<-d.notifications // it listens
	return d
}

// lives keeps what its heartbeats renew, while the clock jumps.
func (d *dispatcher) lives() {
	if d.core != nil && d.rdb.Get(background, hg("leader")).Val() == d.process {
		d.rdb.Persist(background, hg("leader"))
		d.rdb.Persist(background, hg("contended"))
	}
}

// pump gives turns until nothing is due. It returns the promoted jobs, and the time until something
// is due again, which is negative if nothing is. If another process leads, held is false, and next
// is the rest of the other's lease.
func (d *dispatcher) pump() (ids []string, next time.Duration, held bool, err error) {
	lead, err := d.lead()
	if err != nil || !lead.Held {
		d.core = nil
		return nil, lead.RemainingLease, false, err
	}
	expired, deadline, err := d.lanes.ExpireWaits(background, 100)
	for _, job := range expired {
		ids = append(ids, job.ID)
	}
	for range 1000 {
		if err == nil {
			var promoted []string
			promoted, err = d.work()
			ids = append(ids, promoted...)
		}
		if err != nil || d.core == nil {
			return ids, 0, false, err
		}
		if err = d.receive(); err != nil {
			continue
		}
		if due := d.core.Next(d.clock()); due > d.clock() {
			if deadline < math.MaxInt64 {
				due = min(due, d.clock()+deadline.Microseconds())
			}
			next = time.Duration(due-d.clock()) * time.Microsecond
			if due == math.MaxInt64 {
				next = -1
			}
			return ids, next, true, d.publishShares()
		}
	}
	return ids, 0, true, errors.New("something is due again and again")
}

func (d *dispatcher) clock() int64 { return d.now.UnixMicro() }

// lead takes or renews the lease, and reads the lanes that it does not know.
func (d *dispatcher) lead() (lead waitdb.Leadership, err error) {
	if err := d.receive(); err != nil {
		return lead, err
	}
	if d.core == nil {
		d.seen = 0
	}
	takesOver := d.core == nil
	for {
		lead, err = d.lanes.BecomeLeader(background, d.process, leaseTime, d.seen, "epoch")
		if err != nil || !lead.Held {
			return lead, err
		}
		takesOver = takesOver || lead.ReadAll
		if d.core == nil || lead.ReadAll {
			d.core, d.changes = fairqueue.New(), lead.Changes
			weights, err := d.lanes.Weights(background)
			if err != nil {
				return lead, err
			}
			d.core.SetWeights(weights)
		}
		if d.changes < lead.Changes { // a notification got lost
			d.changes = lead.Changes
			d.core.Changed(d.clock(), "")
		}
		var names []string
		for _, lane := range lead.NewLanes {
			d.core.AddLane(lane.Lane, lane.Number)
			d.seen = max(d.seen, lane.Number)
			names = append(names, lane.Lane)
		}
		if !takesOver {
			names = nil
		}
		for names := range slices.Chunk(names, 100) {
			if err := d.expire(names, true); err != nil {
				return lead, err
			}
		}
		if len(lead.NewLanes) < waitdb.LanesPage {
			return lead, nil
		}
	}
}

// receive reads all notifications that were published until now. A notification of its own marks
// their end.
func (d *dispatcher) receive() error {
	d.silence++
	if err := d.rdb.Publish(background, hg("wake"), fmt.Sprintf("silence %d", d.silence)).Err(); err != nil {
		return err
	}
	for n := range d.notifications {
		if n.Kind == "silence" && n.Number == d.silence {
			break
		}
		if d.core == nil {
			continue
		}
		switch n.Kind {
		case waitdb.JobArrived:
			d.core.Arrived(d.clock(), n.Name)
		case waitdb.MeterChanged:
			d.core.Changed(d.clock(), n.Name)
		case waitdb.LimitChanged:
			d.core.Changed(d.clock(), n.Name)
		default:
			continue
		}
		d.changes = max(d.changes, n.Number)
	}
	return nil
}

// work carries out the core's decisions once, and returns the promoted jobs.
func (d *dispatcher) work() (ids []string, err error) {
	if lanes := d.core.ToExpire(d.clock(), 100); len(lanes) > 0 {
		if err := d.expire(lanes, false); err != nil {
			return nil, err
		}
	}
	if turns := d.core.Turns(d.clock(), 64); len(turns) > 0 {
		_, results, held, err := d.lanes.Grant(background, d.process, turns)
		if err != nil {
			return nil, err
		}
		if !held {
			d.core = nil
			return nil, nil
		}
		d.core.ApplyResults(d.clock(), results)
	}
	for _, job := range d.core.ToPromote(d.clock(), 100) {
		state := fairqueue.StateMoved
		if d.state != nil {
			state = d.state(job)
		}
		if state == fairqueue.StateMoved {
			ids = append(ids, job.ID)
		} else if _, err := d.lanes.Forget(background, throttle.JobID{Queue: job.Queue, ID: job.ID}); err != nil {
			return ids, err
		}
		d.core.Promoted(d.clock(), job, state)
	}
	return ids, nil
}

// expire releases what is reserved for jobs that have not arrived in time. After a takeover all
// granted jobs are promoted, because the last leader may not have done it.
func (d *dispatcher) expire(lanes []string, takeover bool) error {
	expired, err := d.lanes.ExpireGrants(background, lanes)
	for i, r := range expired {
		if takeover {
			r.Overdue = append(r.Overdue, r.Reserved...)
		}
		d.core.Expired(d.clock(), lanes[i], r.Granted, r.Overdue, r.Waiting > 0)
	}
	return err
}

// publishShares writes at which meters lanes take turns, and at which newcomers may take permits.
func (d *dispatcher) publishShares() error {
	sharing := d.core.Sharing(d.clock())
	if len(sharing) == 0 {
		return nil
	}
	marked, err := d.lanes.PublishShares(background, d.process, d.seen, sharing)
	for _, meter := range marked {
		d.core.Changed(d.clock(), meter)
	}
	return err
}

// hg is the name of a key of the fixture's scope.
func hg(name string) string { return "hg:{default}:" + name }

func (s *fixture) dispatcherOf() *dispatcher {
	if s.dispatcher == nil {
		s.dispatcher = newDispatcher(s, "dispatcher")
	}
	return s.dispatcher
}

// pump has the fixture's dispatcher give all turns that are due. It returns the promoted jobs, and
// the time until something is due again.
func (s *fixture) pump(t redistest.TB) (ids []string, next time.Duration) {
	t.Helper()
	ids, next, held, err := s.dispatcherOf().pump()
	if err != nil || !held {
		t.Fatalf("pump: held %t, %v", held, err)
	}
	return ids, next
}

// pumped returns the jobs that a pump promotes.
func (s *fixture) pumped(t redistest.TB) []string {
	t.Helper()
	ids, _ := s.pump(t)
	return ids
}
