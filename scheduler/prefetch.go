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
	// startWithin is how long a fetched job waits here for asynq to ask for it. After that the job
	// goes back to its queue, so that other servers may run it.
	startWithin = time.Second
	// leastLease is the least time that a lease must still last for its job to be handed to asynq:
	// half a lease.
	leastLease = asynqdb.LeaseTime / 2
)

// prefetcher fetches jobs for all free slots of a server at once. asynq asks for one job at a time,
// in one goroutine, and waits for Redis each time. The jobs beyond the first wait here until asynq
// asks again, which asynq does at once as long as it has free slots. The number of free slots need
// not be exact: with too few jobs asynq asks once more, and a job too many goes back to the head of
// its queue after a second. All jobs that wait here go back when the server stops.
//
// If the reply to a fetch is lost, Redis has handed out jobs that this process never saw. Repeating
// the same call returns those jobs again.
//
// It is safe for concurrent use.
type prefetcher struct {
	db       asynqdb.DB
	health   *redishealth.Monitor
	slots    int // of the server
	shares   int // how many queues asynq draws from by weight, else 1
	jobs     admitter
	inFlight *inFlight

	lock      chan struct{} // guards what follows; held while Redis answers
	next      batch         // what asynq gets next, until then
	until     time.Time
	returned  []batch                     // what is to be given back
	lost      map[string]*asynqdb.Dequeue // of each queue one whose answer is unknown
	emptiedAt map[string]time.Time        // when queues gave all that they had
	timer     *time.Timer                 // of what is not begun in time
	stopped   bool
}

// An admitter decides which of the fetched jobs asynq gets.
type admitter interface {
	// acquireAll requests permits for jobs. It returns the jobs that asynq gets; the others were
	// denied and are back in their queue.
	acquireAll(ctx context.Context, jobs batch) []dequeuedJob
	// releaseUnused gives up the permits of a job that will not start.
	releaseUnused(q *acquireRequest)
}

// batch holds the jobs returned by one dequeue that have not started yet.
type batch struct {
	*asynqdb.Dequeue
	jobs []dequeuedJob
}

// dequeuedJob is a job's ID, its message as asynq stores it, and the request for its permits.
type dequeuedJob struct {
	id, msg string
	back    bool // whether it was put back since it was enqueued
	*acquireRequest
}

// newPrefetcher returns a prefetcher for a server with that configuration.
func newPrefetcher(db asynqdb.DB, cfg asynq.Config, health *redishealth.Monitor, jobs admitter, flying *inFlight) *prefetcher {
	a := &prefetcher{
		db: db, health: health, jobs: jobs, inFlight: flying, slots: cfg.Concurrency, shares: 1,
		lock: make(chan struct{}, 1), lost: map[string]*asynqdb.Dequeue{}, emptiedAt: map[string]time.Time{},
	}
	if a.slots < 1 {
		a.slots = runtime.NumCPU() // as asynq has it
	}
	if !cfg.StrictPriority {
		a.shares = max(1, len(cfg.Queues))
	}
	return a
}

// errAllDenied is returned when every fetched job was denied a permit. The queue may hold more
// jobs.
var errAllDenied = errors.New("all jobs that were taken wait for permits")

// dequeue does the work of asynq's script Dequeue: it returns one job that asynq may start,
// possibly of another queue. ends is the Unix second at which the lease ends. woken is when a
// marker was used up for this call, or zero. The error is redis.Nil if there is no job, or
// errAllDenied.
func (a *prefetcher) dequeue(ctx context.Context, queue string, ends int64, woken time.Time) (dequeuedJob, error) {
	a.lock <- struct{}{}
	defer func() { <-a.lock }()
	if a.stopped {
		return dequeuedJob{}, redis.Nil
	}
	a.returnExpired(ctx)
	if len(a.next.jobs) == 0 {
		if err := a.repeatLost(ctx, queue); err != nil {
			return dequeuedJob{}, err
		}
	}
	for parked := 0; len(a.next.jobs) == 0; {
		if parked >= maxBatch {
			return dequeuedJob{}, errAllDenied
		}
		c := asynqdb.NewDequeue(queue, ends, !woken.IsZero())
		looked := a.emptiedAt[queue] // nobody has rung since
		if looked.After(woken) && time.Since(looked) < shortestWait || time.Until(c.LeaseEnd()) < leastLease {
			return dequeuedJob{}, redis.Nil
		}
		n, err := a.send(ctx, c, a.freeSlots())
		if err != nil {
			return dequeuedJob{}, err
		}
		if n == 0 {
			return dequeuedJob{}, redis.Nil
		}
		parked += n
	}
	first := a.next.jobs[0]
	a.next.jobs = a.next.jobs[1:]
	a.inFlight.add(job{Queue: a.next.Queue, ID: first.id}, flight{lease: a.next.Lease(), msg: first.msg, asking: first.acquireRequest})
	return first, nil
}

// freeSlots is how many jobs to fetch: as many as asynq has free slots. If asynq draws from several
// queues by weight, one draw fills only its part of the slots, so that long jobs of one queue do
// not take all of them.
func (a *prefetcher) freeSlots() int {
	free := max(1, a.slots-a.inFlight.busy())
	return min(maxBatch, (free+a.shares-1)/a.shares)
}

// send fetches up to n jobs, or repeats an earlier fetch to get the jobs that it took, and keeps
// the jobs that were not denied. It returns how many jobs were fetched. Jobs whose reply comes too
// late go back, because their leases may end.
func (a *prefetcher) send(ctx context.Context, c *asynqdb.Dequeue, n int) (int, error) {
	began := time.Now()
	found, err := a.db.Dequeue(ctx, c, n)
	a.health.Note(ctx, began, err)
	if err != nil {
		a.lost[c.Queue] = c
		return 0, err
	}
	delete(a.lost, c.Queue)
	a.next, a.until = batch{Dequeue: c}, time.Now().Add(startWithin)
	for _, t := range found {
		a.next.jobs = append(a.next.jobs, dequeuedJob{id: t.ID, msg: t.Msg, back: t.Back})
	}
	took := len(a.next.jobs)
	if 0 < took && took < n {
		a.emptiedAt[c.Queue] = began
	}
	if time.Until(c.LeaseEnd()) < leastLease {
		a.until = time.Now()
		a.returnExpired(ctx)
	} else if took > 0 && !a.stopped {
		a.next.jobs = a.jobs.acquireAll(ctx, a.next)
	}
	if len(a.next.jobs) > 1 {
		a.wait(startWithin)
	}
	return took, nil
}

// repeatLost repeats calls whose replies were lost until one has brought jobs. If Redis does not
// answer for another queue than the requested one, the caller goes on with the requested queue.
func (a *prefetcher) repeatLost(ctx context.Context, queue string) error {
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

// returnExpired gives back jobs that did not start in time. If Redis does not take them, it tries
// again each second until the leases end.
func (a *prefetcher) returnExpired(ctx context.Context) {
	if len(a.next.jobs) > 0 && !time.Now().Before(a.until) {
		a.returned = append(a.returned, a.next)
		a.next = batch{}
	}
	back := a.returned
	a.returned = nil
	for _, b := range back {
		if a.giveBack(ctx, b) != nil && time.Now().Before(b.LeaseEnd()) {
			a.returned = append(a.returned, b)
		}
	}
	if len(a.returned) > 0 {
		a.wait(time.Second)
	}
}

// giveBack puts jobs back to where they were fetched from. A job that was allowed keeps its
// position among the jobs that wait for permits.
func (a *prefetcher) giveBack(ctx context.Context, b batch) error {
	back := make([]asynqdb.Taken, len(b.jobs))
	for i, j := range b.jobs {
		if j.acquireRequest != nil {
			b.jobs[i].msg, b.jobs[i].back = string(j.queuePosition().writeTo(j.job, []byte(j.msg))), true
			go a.jobs.releaseUnused(j.acquireRequest)
			b.jobs[i].acquireRequest = nil
		}
		back[i] = asynqdb.Taken{ID: j.id, Msg: b.jobs[i].msg, Back: b.jobs[i].back}
	}
	return a.db.GiveBack(ctx, b.Dequeue, back...)
}

// wait arms the timer that calls expire after d.
func (a *prefetcher) wait(d time.Duration) {
	if a.timer == nil {
		a.timer = time.AfterFunc(d, a.expire)
		return
	}
	a.timer.Reset(d)
}

// expire gives back jobs that asynq does not ask for.
func (a *prefetcher) expire() {
	a.lock <- struct{}{}
	defer func() { <-a.lock }()
	a.returnExpired(context.Background())
	if len(a.next.jobs) > 0 {
		a.wait(time.Until(a.until))
	}
}

// stop gives back all jobs that have not started. Afterwards asynq, which may still be asking,
// finds the queues empty.
func (a *prefetcher) stop() {
	a.lock <- struct{}{}
	defer func() { <-a.lock }()
	a.stopped = true
	ctx := context.Background()
	a.until = time.Now()
	a.returnExpired(ctx)
	for _, c := range a.lost {
		_, _ = a.send(ctx, c, 0) // what this does not find, recovery does
		a.until = time.Now()
		a.returnExpired(ctx)
	}
}
