package scheduler

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/stats"
	"github.com/headgate/headgate/throttle"
)

const (
	// startWithin is how long a fetched job waits in the prefetcher for asynq's next dequeue. After
	// that the job goes back to its queue, so that other servers may run it.
	startWithin = time.Second
	// leastLease is the minimum remaining lease of a job that is handed to asynq.
	leastLease = asynqdb.LeaseTime / 2
	// passShare is the maximum percentage of Redis's time for batches of new jobs that are all
	// denied.
	passShare = 30
	// longestRest is the longest pause after such a batch; only a slow Redis leads to it. A pause
	// leaves no permit unused, because each job of the batch has to wait at least 2·longestRest.
	longestRest = time.Second
	// othersWait is how long the server does not fetch from an empty queue while the markers of
	// other queues wake it. To look at all shards for each job would cost more than the jobs.
	othersWait = 100 * time.Millisecond
	// shardBatch is how many jobs may be fetched from a shard whose marker has not come, even if
	// the shard's part of the free slots is smaller. A larger batch would delay the other shards'
	// jobs.
	shardBatch = 8
	// admitTime is how long fetched jobs are held back at most until their requests have results,
	// so that denied jobs occupy no worker slots. After that time, or at once if no job was denied
	// within deniedWindow, asynq gets jobs whose requests are still under way.
	admitTime = 10 * time.Millisecond
)

// prefetcher fetches jobs for all free slots of a server at once. asynq dequeues one job at a time,
// in one goroutine, and waits for Redis each time. The jobs beyond the first wait here for asynq's
// next dequeue, which follows at once while asynq has free slots. A job that asynq does not dequeue
// within startWithin, or before the server stops, goes back to the head of its queue.
//
// If the reply to a fetch is lost, Redis has handed out jobs that this process never saw. Repeating
// the same call returns those jobs again. A prefetcher is safe for concurrent use.
type prefetcher struct {
	*Server
	slots  int // number of worker slots of the server
	shares int // how many weighted queues asynq draws from; 1 with strict priority

	lock   chan struct{} // guards what follows; held while Redis answers
	next   []*attempt    // fetched jobs that asynq has not dequeued; they go back at the time until
	until  time.Time
	queues map[string]*fetchedQueue // by asynq queue
	passAt time.Time                // when the next batch of new jobs of a queue with a backlog is due
	timer  *time.Timer              // gives back jobs that do not start in time
	closed bool
}

// fetchedQueue is what a prefetcher knows of an asynq queue.
type fetchedQueue struct {
	*rotation
	lost    *asynqdb.Dequeue // a fetch whose reply was lost; nil if there is none
	emptyAt time.Time        // start of the last fetch that found fewer jobs than requested
	pass    time.Duration    // if the queue has a backlog: how long its last batch of new jobs took; else 0
}

// rotation is the order in which a server fetches from the shards of a queue. A queue without
// shards has itself as its only shard.
type rotation struct {
	shards []string
	next   int
}

// newPrefetcher returns a prefetcher for a server with the configuration cfg.
func newPrefetcher(s *Server, cfg asynq.Config) *prefetcher {
	p := &prefetcher{Server: s, slots: cfg.Concurrency, shares: 1, lock: make(chan struct{}, 1), queues: map[string]*fetchedQueue{}}
	for _, queue := range s.served {
		r := &rotation{shards: s.shards.Names(queue)}
		for _, name := range r.shards {
			p.queues[name] = &fetchedQueue{rotation: r}
		}
	}
	if p.slots < 1 {
		p.slots = runtime.NumCPU() // as asynq does
	}
	if !cfg.StrictPriority {
		p.shares = max(1, len(cfg.Queues))
	}
	p.timer = time.AfterFunc(startWithin, p.expire)
	p.timer.Stop()
	return p
}

// errAllDenied is the error of dequeue when every fetched job was denied a permit. The queue may
// hold more jobs.
var errAllDenied = errors.New("all fetched jobs were denied permits")

// dequeue replaces asynq's script Dequeue. It returns one job that asynq may start, possibly of
// another queue. It fetches jobs only if none is left of the last fetch. The leases of newly
// fetched jobs end at the Unix second ends. The error is redis.Nil if there is no job now,
// errAllDenied, or an error of Redis.
func (p *prefetcher) dequeue(ctx context.Context, queue string, ends int64) (*attempt, error) {
	p.lock <- struct{}{}
	defer func() { <-p.lock }()
	if p.closed {
		return nil, redis.Nil
	}
	p.giveBackExpired(ctx)
	var marked bool
	if len(p.next) == 0 {
		queue, marked = p.sourceOf(queue)
		if err := p.repeatLost(ctx, queue); err != nil {
			return nil, err
		}
	}
	for denied := 0; len(p.next) == 0; marked = false {
		if denied >= maxBatch {
			return nil, errAllDenied
		}
		q, c, now := p.queues[queue], asynqdb.NewDequeue(queue, ends, p.markers.woken), time.Now()
		passes := q.pass > 0 && !now.Before(p.passAt)
		if !marked && !passes && now.Sub(q.emptyAt) < p.markers.quiet() || c.Ends.Sub(now) < leastLease {
			return nil, redis.Nil
		}
		n := p.freeSlots()
		if !marked && q.pass == 0 {
			n = min(n, max(n/len(q.shards), shardBatch))
		}
		if passes {
			c.Rest = min(max(q.pass*100/passShare, time.Millisecond), longestRest)
			p.passAt = now.Add(c.Rest)
		} else if q.pass > 0 {
			c.Rest = asynqdb.NoNew
		}
		n, err := p.send(ctx, c, n)
		if err != nil {
			return nil, err
		}
		if n == 0 {
			return nil, redis.Nil
		}
		denied += n
	}
	first := p.next[0]
	p.next = p.next[1:]
	p.inFlight.add(first)
	return first, nil
}

// freeSlots returns how many jobs a fetch requests, at least 1 and at most maxBatch: the number of
// asynq's free slots. With weighted queues it is an equal share of that number, so that long jobs
// of one queue do not take all slots.
func (p *prefetcher) freeSlots() int {
	free := max(1, p.slots-p.inFlight.busy())
	return min(maxBatch, (free+p.shares-1)/p.shares)
}

// sourceOf returns the queue to fetch from when asynq fetches from queue, and whether its marker
// has come. A shard whose marker has come is next, because it has a job. If no marker has come, the
// shards of a queue take turns, because asynq with strict priority always begins with the same
// shard.
func (p *prefetcher) sourceOf(queue string) (from string, marked bool) {
	r := p.queues[queue].rotation
	if from, marked = p.markers.take(r.shards...); !marked {
		from = r.shards[r.next]
		r.next = (r.next + 1) % len(r.shards)
	}
	return from, marked
}

// send makes the fetch c of up to n jobs. If n is 0, c is an earlier fetch whose reply was lost,
// and send repeats it to get the jobs that it took. send sets p.next to the jobs that were not
// denied, and returns how many jobs were fetched. Jobs whose reply comes too late go back, because
// their leases may end.
func (p *prefetcher) send(ctx context.Context, c *asynqdb.Dequeue, n int) (int, error) {
	began, q := time.Now(), p.queues[c.Queue]
	found, err := p.db.Dequeue(ctx, c, n)
	p.scopeOf(c.Queue).queueHealth.Note(ctx, began, err)
	if err != nil {
		q.lost = c
		return 0, err
	}
	q.lost = nil
	p.next, p.until = nil, time.Now().Add(startWithin)
	for _, j := range found {
		p.next = append(p.next, p.newAttempt(j, c.Ends))
	}
	if len(found) < n && c.Rest <= 0 {
		q.emptyAt = began
	}
	if time.Until(c.Ends) < leastLease {
		p.until = time.Now()
		p.giveBackExpired(ctx)
	} else if len(found) > 0 && !p.closed {
		p.acquireAll(ctx, n, began)
	}
	if len(p.next) > 1 {
		p.timer.Reset(startWithin)
	}
	return len(found), nil
}

// acquireAll requests permits for the fetched jobs in p.next. If a job was denied within
// deniedWindow, acquireAll waits up to admitTime for the results, and puts denied jobs back. So
// denied jobs rarely occupy a worker slot. A job whose request has any other error goes to asynq,
// and the handler of Server.wrap reports that error.
//
// Then acquireAll notes whether the queue has a backlog: the fetch, which began at began, found all
// n jobs that it asked for, and each new job among them was denied for at least 2·longestRest. If
// the fetch found no new job, that does not change.
func (p *prefetcher) acquireAll(ctx context.Context, n int, began time.Time) {
	all := p.next
	s, q := all[0].scope, p.queues[all[0].Queue]
	readable := slices.DeleteFunc(slices.Clone(all), func(a *attempt) bool { return a.task == nil })
	s.request(readable...)
	if time.Since(time.Unix(0, s.deniedAt.Load())) < deniedWindow {
		wait, cancel := context.WithTimeout(ctx, admitTime)
		defer cancel()
		for _, a := range readable {
			if _, ok := receive(wait, a.done); !ok {
				break
			}
		}
		p.next = p.putBackDenied(context.WithoutCancel(ctx), all)
	}
	hasNew, hasShort := false, false
	for _, a := range all {
		if !a.Back {
			isLong := a.isDone() && a.decision.Outcome == throttle.Denied && a.decision.RetryAfter >= 2*longestRest
			hasNew, hasShort = true, hasShort || !isLong
		}
	}
	if hasNew {
		if q.pass = time.Since(began); len(all) < n || hasShort {
			q.pass = 0
		}
	}
}

// putBackDenied puts denied jobs back, and returns the others. If the put-back of a job fails, the
// job is among the others, and the handler of Server.wrap puts it back.
func (s *Server) putBackDenied(ctx context.Context, jobs []*attempt) (others []*attempt) {
	var backs []*asynqdb.PutBack
	var denied []*attempt
	for _, a := range jobs {
		var why *putBackError
		if a.isDone() {
			why, _ = errors.AsType[*putBackError](a.err)
		}
		if why == nil {
			others = append(others, a)
			continue
		}
		backs, denied = append(backs, s.newPutBack(a, why, asynqdb.WithLastError(a.Msg, why.Error()))), append(denied, a)
	}
	if len(backs) == 0 {
		return others
	}
	s.db.PutBack(ctx, jobs[0].Queue, backs...)
	for i, a := range denied {
		switch err := backs[i].Err; {
		case err == nil:
			a.scope.stats.CountEnd(a.statsTask, stats.PutBack)
		case !errors.Is(err, asynqdb.ErrNotActive): // else it was deleted, or another server has it
			others = append(others, a)
		}
	}
	return others
}

// repeatLost repeats calls whose replies were lost until one has brought jobs. It returns an error
// only if the repeated call of the given queue fails, because others do not hinder a fetch from it.
func (p *prefetcher) repeatLost(ctx context.Context, queue string) error {
	for name, q := range p.queues {
		if q.lost == nil {
			continue
		}
		if time.Now().After(q.lost.Ends) {
			q.lost = nil // recovery puts its jobs back
			continue
		}
		if _, err := p.send(ctx, q.lost, 0); err != nil && name == queue {
			return err
		}
		if len(p.next) > 0 {
			return nil
		}
	}
	return nil
}

// giveBackExpired puts jobs that did not start in time back to the head of their queue. A job that
// was allowed keeps its position among the jobs that wait for permits. If Redis does not take the
// jobs, recovery puts them back.
func (p *prefetcher) giveBackExpired(ctx context.Context) {
	jobs := p.next
	if len(jobs) == 0 || time.Now().Before(p.until) {
		return
	}
	p.next = nil
	back := make([]asynqdb.Job, len(jobs))
	for i, a := range jobs {
		back[i] = a.Job
		if a.done != nil {
			back[i].Back, back[i].Msg = true, a.nextPosition().writeTo(a.JobID, a.Msg)
			go a.releaseUnused()
		}
	}
	_ = p.db.GiveBack(ctx, back...)
}

// expire gives back jobs that asynq did not dequeue in time.
func (p *prefetcher) expire() {
	p.lock <- struct{}{}
	defer func() { <-p.lock }()
	p.giveBackExpired(context.Background())
	if len(p.next) > 0 {
		p.timer.Reset(time.Until(p.until))
	}
}

// stop gives back all jobs that asynq has not dequeued. After that, dequeue reports empty queues.
func (p *prefetcher) stop() {
	p.lock <- struct{}{}
	defer func() { <-p.lock }()
	p.closed = true
	ctx := context.Background()
	p.until = time.Now()
	p.giveBackExpired(ctx)
	for _, q := range p.queues {
		if q.lost != nil {
			_, _ = p.send(ctx, q.lost, 0) // if this fails, recovery puts the jobs back
			p.until = time.Now()
			p.giveBackExpired(ctx)
		}
	}
}
