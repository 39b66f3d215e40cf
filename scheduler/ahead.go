package scheduler

import (
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/redishealth"
)

const (
	// beginWithin is how long a job that was taken waits here until asynq asks for it.
	// Then other servers may run it.
	beginWithin = time.Second
	// leastLease is how long a lease must last still for its job to be used: half a lease.
	leastLease = asynqdb.LeaseTime / 2
)

// ahead takes jobs from their queues for all free slots of a server at once. asynq asks
// for one job at a time, in one goroutine, and waits for Redis each time. What is more
// than one job waits here until asynq asks again, which it does at once as long as it
// has free slots. How many it has is known well enough: with too few jobs it asks once
// more, and one too many goes back to the head of its queue after a second, as all do
// when the server stops.
//
// Where the answer gets lost jobs have been taken of which nobody knows. Sent again, the
// same call finds them.
//
// It is safe for concurrent use.
type ahead struct {
	db     asynqdb.DB
	health *redishealth.Monitor
	slots  int // of the server
	shares int // how many queues asynq draws from by weight, else 1
	jobs   admitter
	flying *inFlight

	lock    chan struct{} // guards what follows; held while Redis answers
	next    lot           // what asynq gets next, until then
	until   time.Time
	back    []lot                       // what is to be given back
	lost    map[string]*asynqdb.Dequeue // of each queue one whose answer is unknown
	looked  map[string]time.Time        // when queues gave all that they had
	timer   *time.Timer                 // of what is not begun in time
	stopped bool
}

// An admitter decides which of the jobs that were taken asynq gets to see.
type admitter interface {
	// admit asks for the permits of jobs, and returns those that are not back in their
	// queue to wait for theirs.
	admit(ctx context.Context, jobs lot) []taken
	// waste gives up the permits of a job that will not begin.
	waste(q *asking)
}

// A lot is jobs that one dequeue has taken and that have not been begun.
type lot struct {
	*asynqdb.Dequeue
	jobs []taken
}

// taken is a job's ID and its message, as asynq stores it, and what is asked about it.
type taken struct {
	id, msg string
	back    bool // whether it was put back since it was enqueued
	*asking
}

// newAhead is for asynq's configuration of a server.
func newAhead(db asynqdb.DB, cfg asynq.Config, health *redishealth.Monitor, jobs admitter, flying *inFlight) *ahead {
	a := &ahead{
		db: db, health: health, jobs: jobs, flying: flying, slots: cfg.Concurrency, shares: 1,
		lock: make(chan struct{}, 1), lost: map[string]*asynqdb.Dequeue{}, looked: map[string]time.Time{},
	}
	if a.slots < 1 {
		a.slots = runtime.NumCPU() // as asynq has it
	}
	if !cfg.StrictPriority {
		a.shares = max(1, len(cfg.Queues))
	}
	return a
}

// errAllWait is why there is no job where many were taken, which all wait for permits:
// there may be more.
var errAllWait = errors.New("all jobs that were taken wait for permits")

// dequeue does what asynq's script Dequeue is to do, whose leases end at that unix second, and
// returns one job that asynq may begin, whose queue may be another one. The error is
// redis.Nil where there is none, or errAllWait. woken is when a mark was used up for it, if one
// was.
func (a *ahead) dequeue(ctx context.Context, queue string, ends int64, woken time.Time) (taken, error) {
	a.lock <- struct{}{}
	defer func() { <-a.lock }()
	if a.stopped {
		return taken{}, redis.Nil
	}
	a.clear(ctx)
	if len(a.next.jobs) == 0 {
		if err := a.find(ctx, queue); err != nil {
			return taken{}, err
		}
	}
	for parked := 0; len(a.next.jobs) == 0; {
		if parked >= mostAhead {
			return taken{}, errAllWait
		}
		c := asynqdb.NewDequeue(queue, ends, !woken.IsZero())
		looked := a.looked[queue] // nobody has rung since
		if looked.After(woken) && time.Since(looked) < shortestWait || time.Until(c.LeaseEnd()) < leastLease {
			return taken{}, redis.Nil
		}
		n, err := a.send(ctx, c, a.free())
		if err != nil {
			return taken{}, err
		}
		if n == 0 {
			return taken{}, redis.Nil
		}
		parked += n
	}
	first := a.next.jobs[0]
	a.next.jobs = a.next.jobs[1:]
	a.flying.add(job{Queue: a.next.Queue, ID: first.id}, flight{lease: a.next.Lease(), msg: first.msg, asking: first.asking})
	return first, nil
}

// free is how many jobs to ask for: as many as asynq has free slots. Of several queues
// that are drawn by weight one draw fills its part of the slots, so that long jobs
// of one queue do not have them all.
func (a *ahead) free() int {
	free := max(1, a.slots-a.flying.busy())
	return min(mostAhead, (free+a.shares-1)/a.shares)
}

// send makes a call of up to n jobs, or repeats it for those that it took before, and
// keeps those of them as the next that need not wait. It returns how many it has taken. An
// answer that comes too late is not used: the leases may end.
func (a *ahead) send(ctx context.Context, c *asynqdb.Dequeue, n int) (int, error) {
	began := time.Now()
	found, err := a.db.Dequeue(ctx, c, n)
	a.health.Note(ctx, began, err)
	if err != nil {
		a.lost[c.Queue] = c
		return 0, err
	}
	delete(a.lost, c.Queue)
	a.next, a.until = lot{Dequeue: c}, time.Now().Add(beginWithin)
	for _, t := range found {
		a.next.jobs = append(a.next.jobs, taken{id: t.ID, msg: t.Msg, back: t.Back})
	}
	took := len(a.next.jobs)
	if 0 < took && took < n {
		a.looked[c.Queue] = began
	}
	if time.Until(c.LeaseEnd()) < leastLease {
		a.until = time.Now()
		a.clear(ctx)
	} else if took > 0 && !a.stopped {
		a.next.jobs = a.jobs.admit(ctx, a.next)
	}
	if len(a.next.jobs) > 1 {
		a.wait(beginWithin)
	}
	return took, nil
}

// find repeats calls whose answers got lost, until one has brought jobs. Where Redis
// does not answer for another queue than the one that is asked for, that one may go on.
func (a *ahead) find(ctx context.Context, queue string) error {
	for _, c := range a.lost {
		if time.Now().After(c.LeaseEnd()) {
			delete(a.lost, c.Queue) // recovery has them
			continue
		}
		if _, err := a.send(ctx, c, 0); err != nil && c.Queue == queue {
			return err
		}
		if len(a.next.jobs) > 0 {
			return nil
		}
	}
	return nil
}

// clear gives back what was not begun in time. What Redis does not take is tried again
// each second until the leases end.
func (a *ahead) clear(ctx context.Context) {
	if len(a.next.jobs) > 0 && !time.Now().Before(a.until) {
		a.back = append(a.back, a.next)
		a.next = lot{}
	}
	back := a.back
	a.back = nil
	for _, b := range back {
		if a.giveBack(ctx, b) != nil && time.Now().Before(b.LeaseEnd()) {
			a.back = append(a.back, b)
		}
	}
	if len(a.back) > 0 {
		a.wait(time.Second)
	}
}

// giveBack has Redis put jobs back to where they were taken from. One that was allowed keeps
// its place among those who wait for permits.
func (a *ahead) giveBack(ctx context.Context, b lot) error {
	back := make([]asynqdb.Taken, len(b.jobs))
	for i, j := range b.jobs {
		if j.asking != nil {
			b.jobs[i].msg, b.jobs[i].back = string(j.standing().in(j.job, []byte(j.msg))), true
			go a.jobs.waste(j.asking)
			b.jobs[i].asking = nil
		}
		back[i] = asynqdb.Taken{ID: j.id, Msg: b.jobs[i].msg, Back: b.jobs[i].back}
	}
	return a.db.GiveBack(ctx, b.Dequeue, back...)
}

// wait has expire called after d.
func (a *ahead) wait(d time.Duration) {
	if a.timer == nil {
		a.timer = time.AfterFunc(d, a.expire)
		return
	}
	a.timer.Reset(d)
}

// expire looks after jobs that asynq does not ask for.
func (a *ahead) expire() {
	a.lock <- struct{}{}
	defer func() { <-a.lock }()
	a.clear(context.Background())
	if len(a.next.jobs) > 0 {
		a.wait(time.Until(a.until))
	}
}

// stop gives back what has not been begun. From then on asynq, which may be asking still,
// is told that the queues are empty.
func (a *ahead) stop() {
	a.lock <- struct{}{}
	defer func() { <-a.lock }()
	a.stopped = true
	ctx := context.Background()
	a.until = time.Now()
	a.clear(ctx)
	for _, c := range a.lost {
		_, _ = a.send(ctx, c, 0) // what this does not find, recovery does
		a.until = time.Now()
		a.clear(ctx)
	}
}
