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

	lock      chan struct{} // guards what follows; held while Redis answers
	next      []*attempt    // fetched jobs that asynq has not dequeued; they go back at the time until
	until     time.Time
	lost      map[string]*asynqdb.Dequeue // by queue: a fetch whose reply was lost
	emptyAt   map[string]time.Time        // by queue: start of the last fetch that found fewer jobs than requested
	passes    map[string]time.Duration    // by queue with a backlog: how long its last batch of new jobs took
	passAt    time.Time                   // when the next batch of new jobs of such a queue is due
	timer     *time.Timer                 // gives back jobs that do not start in time
	rotations map[string]*rotation        // by asynq queue; only for queues with shards
	stopped   bool
}

// rotation is the order in which a server fetches from the shards of a queue.
type rotation struct {
	shards []string
	next   int
}

// newPrefetcher returns a prefetcher for a server with the configuration cfg.
func newPrefetcher(s *Server, cfg asynq.Config) *prefetcher {
	p := &prefetcher{
		Server: s, slots: cfg.Concurrency, shares: 1,
		lock: make(chan struct{}, 1), lost: map[string]*asynqdb.Dequeue{}, emptyAt: map[string]time.Time{}, passes: map[string]time.Duration{}, rotations: map[string]*rotation{},
	}
	for queue := range s.shards {
		r := &rotation{shards: s.shards.Names(queue)}
		for _, name := range r.shards {
			p.rotations[name] = r
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

// source is where a dequeue fetches from.
type source struct {
	queue  string
	woken  bool          // whether a marker has woken the server
	shards int           // number of shards of the queue, at least 1
	marked bool          // whether the marker of this queue has come
	quiet  time.Duration // how long an empty queue counts as empty if its marker does not come
}

// dequeue replaces asynq's script Dequeue. It returns one job that asynq may start, possibly of
// another queue. It fetches jobs only if none is left of the last fetch. The leases of newly
// fetched jobs end at the Unix second ends. The error is redis.Nil if there is no job now,
// errAllDenied, or an error of Redis.
func (p *prefetcher) dequeue(ctx context.Context, queue string, ends int64) (*attempt, error) {
	p.lock <- struct{}{}
	defer func() { <-p.lock }()
	if p.stopped {
		return nil, redis.Nil
	}
	p.giveBackExpired(ctx)
	var from source
	if len(p.next) == 0 {
		from = p.sourceOf(queue)
		if err := p.repeatLost(ctx, from.queue); err != nil {
			return nil, err
		}
	}
	for denied := 0; len(p.next) == 0; {
		if denied >= maxBatch {
			return nil, errAllDenied
		}
		queue := from.queue
		c := asynqdb.NewDequeue(queue, ends, from.woken)
		took, now := p.passes[queue], time.Now()
		passes := took > 0 && !now.Before(p.passAt)
		if !from.marked && !passes && now.Sub(p.emptyAt[queue]) < from.quiet || time.Until(c.LeaseEnd()) < leastLease {
			return nil, redis.Nil
		}
		n := p.freeSlots()
		if !from.marked && took == 0 {
			n = min(n, max(n/from.shards, shardBatch))
		}
		from.marked = false
		if passes {
			c.Rest = min(max(took*100/passShare, time.Millisecond), longestRest)
			p.passAt = now.Add(c.Rest)
		} else if took > 0 {
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

// send makes the fetch c of up to n jobs. If n is 0, c is an earlier fetch whose reply was lost,
// and send repeats it to get the jobs that it took. send sets p.next to the jobs that were not
// denied, and returns how many jobs were fetched. Jobs whose reply comes too late go back, because
// their leases may end.
func (p *prefetcher) send(ctx context.Context, c *asynqdb.Dequeue, n int) (int, error) {
	began := time.Now()
	found, err := p.db.Dequeue(ctx, c, n)
	p.scopeOf(c.Queue).queueHealth.Note(ctx, began, err)
	if err != nil {
		p.lost[c.Queue] = c
		return 0, err
	}
	delete(p.lost, c.Queue)
	p.next, p.until = nil, time.Now().Add(startWithin)
	for _, t := range found {
		p.next = append(p.next, p.newAttempt(c, t))
	}
	if len(found) < n && c.Rest <= 0 {
		p.emptyAt[c.Queue] = began
	}
	if time.Until(c.LeaseEnd()) < leastLease {
		p.until = time.Now()
		p.giveBackExpired(ctx)
	} else if len(found) > 0 && !p.stopped {
		all := p.next
		p.next = p.acquireAll(ctx, all)
		p.notePass(c.Queue, all, n, time.Since(began))
	}
	if len(p.next) > 1 {
		p.timer.Reset(startWithin)
	}
	return len(found), nil
}

// notePass notes whether a queue has a backlog: the fetch found all n jobs that it asked for, and
// each new job among them was denied for at least 2·longestRest. The parameter took is the duration
// of the fetch and the requests. If the fetch found no new job, notePass changes nothing.
func (p *prefetcher) notePass(queue string, found []*attempt, n int, took time.Duration) {
	isNew := func(a *attempt) bool { return !a.back }
	isShort := func(a *attempt) bool {
		isLong := a.isDone() && a.decision.Outcome == throttle.Denied && a.decision.RetryAfter >= 2*longestRest
		return isNew(a) && !isLong
	}
	switch {
	case !slices.ContainsFunc(found, isNew):
	case len(found) < n || slices.ContainsFunc(found, isShort):
		delete(p.passes, queue)
	default:
		p.passes[queue] = took
	}
}

// repeatLost repeats calls whose replies were lost until one has brought jobs. It returns an error
// only if the repeated call of the given queue fails, because others do not hinder a fetch from it.
func (p *prefetcher) repeatLost(ctx context.Context, queue string) error {
	for _, c := range p.lost {
		if time.Now().After(c.LeaseEnd()) {
			delete(p.lost, c.Queue) // recovery puts its jobs back
			continue
		}
		if _, err := p.send(ctx, c, 0); err != nil && c.Queue == queue {
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
	back := make([]asynqdb.Taken, len(jobs))
	for i, a := range jobs {
		if a.done != nil {
			a.back = true
			a.msg = string(a.nextPosition().writeTo(a.job, []byte(a.msg)))
			go a.releaseUnused()
		}
		back[i] = asynqdb.Taken{ID: a.ID, Msg: a.msg, Back: a.back}
	}
	_ = p.db.GiveBack(ctx, asynqdb.DequeueOf(jobs[0].Queue, jobs[0].lease), back...)
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
	p.stopped = true
	ctx := context.Background()
	p.until = time.Now()
	p.giveBackExpired(ctx)
	for _, c := range p.lost {
		_, _ = p.send(ctx, c, 0) // if this fails, recovery puts the jobs back
		p.until = time.Now()
		p.giveBackExpired(ctx)
	}
}

// sourceOf returns the queue to fetch from when asynq fetches from queue. A shard whose marker has
// come is next, because it has a job. If no marker has come, the shards of a queue take turns,
// because asynq with strict priority always begins with the same shard.
func (p *prefetcher) sourceOf(queue string) source {
	queues := []string{queue}
	r := p.rotations[queue]
	if r != nil {
		queues = r.shards
	}
	marked, ok := p.markers.take(queues...)
	switch {
	case ok:
		queue = marked
	case r != nil:
		queue = r.shards[r.next]
		r.next = (r.next + 1) % len(r.shards)
	}
	return source{queue, p.markers.woken, len(queues), ok, p.markers.quiet()}
}

// acquireAll requests permits for fetched jobs, and returns the jobs that asynq gets. If a job was
// denied within deniedWindow, acquireAll waits up to admitTime for the results, and puts denied
// jobs back. So denied jobs rarely occupy a worker slot. A job whose request has any other error
// goes to asynq, and the handler of Server.wrap reports that error.
func (s *Server) acquireAll(ctx context.Context, jobs []*attempt) []*attempt {
	readable := slices.DeleteFunc(slices.Clone(jobs), func(a *attempt) bool { return a.task == nil })
	c := jobs[0].scope
	c.request(readable...)
	if time.Since(time.Unix(0, c.deniedAt.Load())) >= deniedWindow {
		return jobs
	}
	wait, cancel := context.WithTimeout(ctx, admitTime)
	defer cancel()
	for _, a := range readable {
		if _, ok := receive(wait, a.done); !ok {
			break
		}
	}
	return s.putBackDenied(context.WithoutCancel(ctx), jobs)
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
		msg := asynqdb.WithLastError([]byte(a.msg), why.Error())
		backs, denied = append(backs, s.newPutBack(a, why, msg, a.unique)), append(denied, a)
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
