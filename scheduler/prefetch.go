package scheduler

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/stats"
	"github.com/headgate/headgate/internal/usercode"
	"github.com/headgate/headgate/throttle"
)

const (
	// startWithin is how long a fetched job waits in the prefetcher for asynq's next dequeue. After
	// that the job goes back to its queue, so that other servers may run it.
	startWithin = time.Second
	// minLease is the minimum remaining lease of a job that is handed to asynq.
	minLease = asynqdb.LeaseTime / 2
	// maxDeniedShare is the maximum percentage of Redis's time for batches of new jobs that are all
	// denied.
	maxDeniedShare = 30
	// maxRest is the longest pause after such a batch. A pause leaves no permit unused, because
	// each job of the batch has to wait at least 2·maxRest.
	maxRest = time.Second
	// emptyQueuePause is the pause between two fetches from an empty queue while the markers of
	// other queues wake the server.
	emptyQueuePause = 100 * time.Millisecond
	// A fetch from a shard whose marker has not come takes at most shardBatch jobs, or the shard's
	// part of the free slots if that is larger.
	shardBatch = 8
	// admitTime is the maximum time for which a fetched job waits in the prefetcher for the
	// limiter's result, so that denied jobs occupy no worker slots.
	admitTime = 10 * time.Millisecond
	// fastReply is how long a reply may take after which the next one may have twice as many bytes.
	fastReply = 500 * time.Millisecond
	// endingTime is the maximum time for which a fetched job waits for the end of an earlier attempt.
	endingTime = 100 * time.Millisecond
	// busyPause is the pause of a job while asynq has an attempt with the same job ID.
	busyPause = time.Second
)

// prefetcher fetches jobs for all free slots of a server at once, because asynq dequeues one job at
// a time. The jobs beyond the first wait here for asynq's next dequeue. A job that asynq does not
// dequeue within startWithin, or before the server stops, goes back to the head of its queue.
//
// If the reply to a fetch is lost, the prefetcher repeats the fetch, and Redis returns the same
// jobs. A prefetcher is safe for concurrent use.
type prefetcher struct {
	*Server
	slots  int // number of worker slots of the server
	shares int // how many weighted queues asynq draws from; 1 with strict priority

	orderDue   chan struct{} // receives a value when pending jobs with fairness keys may be out of order
	lock       chan struct{} // guards what follows; held while Redis answers
	next       []*attempt    // fetched jobs that asynq has not dequeued; they go back at giveBackAt
	giveBackAt time.Time
	queues     map[string]*fetchedQueue // by asynq queue
	nextNewAt  time.Time                // when the next batch of new jobs of a queue with a backlog is due
	maxBytes   int                      // the bound of the next fetch; see noteReply
	timer      *time.Timer              // gives back jobs that do not start in time
	closed     bool
	paused     bool // the server is drained
}

// fetchedQueue is what a prefetcher knows of an asynq queue.
type fetchedQueue struct {
	*rotation
	lostFetch   *asynqdb.Dequeue // nil if no reply was lost
	hasKeys     atomic.Bool      // whether a job of the queue had a fairness key
	emptyAt     time.Time        // start of the last fetch that found fewer jobs than requested
	backlogTook time.Duration    // how long the last batch of new jobs took; 0 if the queue has no backlog
}

// rotation is the order in which a server fetches from the shards of a queue. A queue without
// shards has itself as its only shard.
type rotation struct {
	shards []string
	next   int
}

// newPrefetcher returns a prefetcher for a server with the configuration cfg.
func newPrefetcher(s *Server, cfg asynq.Config) *prefetcher {
	p := &prefetcher{Server: s, slots: cfg.Concurrency, shares: 1, maxBytes: asynqdb.MaxReply, lock: make(chan struct{}, 1), orderDue: make(chan struct{}, 1), queues: map[string]*fetchedQueue{}}
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
// fetched jobs end at the Unix second leaseEnd. The error is redis.Nil if there is no job now,
// errAllDenied, or an error of Redis.
func (p *prefetcher) dequeue(ctx context.Context, queue string, leaseEnd int64) (*attempt, error) {
	p.lock <- struct{}{}
	defer func() { <-p.lock }()
	if p.closed || p.paused {
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
		q, c, now := p.queues[queue], asynqdb.NewDequeue(queue, leaseEnd, p.markers.woken), time.Now()
		newDue := q.backlogTook > 0 && !now.Before(p.nextNewAt)
		if !marked && !newDue && now.Sub(q.emptyAt) < p.markers.emptyPause() || c.Ends.Sub(now) < minLease {
			return nil, redis.Nil
		}
		c.MaxBytes = p.maxBytes
		n := p.fetchSize()
		if !marked && q.backlogTook == 0 {
			n = min(n, max(n/len(q.shards), shardBatch))
		}
		if newDue {
			c.Rest = min(max(q.backlogTook*100/maxDeniedShare, time.Millisecond), maxRest)
			p.nextNewAt = now.Add(c.Rest)
		} else if q.backlogTook > 0 {
			c.Rest = asynqdb.NoNew
		}
		n, err := p.fetch(ctx, c, n)
		if err != nil {
			return nil, err
		}
		if n == 0 {
			return nil, redis.Nil
		}
		denied += n
	}
	first := p.next[0]
	if p.next = p.next[1:]; first.task != nil { // asynq does not run a job whose message is not valid
		p.inFlight.add(first)
	}
	return first, nil
}

// fetchSize returns how many jobs a fetch requests: the number of free slots, at least 1 and at
// most maxBatch. With weighted queues the result is an equal share of that number, so that long
// jobs of one queue do not take all slots.
func (p *prefetcher) fetchSize() int {
	free := max(1, p.slots-p.inFlight.occupiedSlots())
	return min(maxBatch, (free+p.shares-1)/p.shares)
}

// sourceOf returns the shard to fetch from when asynq fetches from queue, and whether the shard's
// marker has come. A shard whose marker has come is first, because it has a job. If no marker has
// come, the shards take turns.
func (p *prefetcher) sourceOf(queue string) (from string, marked bool) {
	r := p.queues[queue].rotation
	if from, marked = p.markers.take(r.shards...); !marked {
		from = r.shards[r.next]
		r.next = (r.next + 1) % len(r.shards)
	}
	return from, marked
}

// fetch makes the call c for up to n jobs. If n is 0, fetch repeats the call c, because its reply
// was lost. fetch sets p.next to the jobs that were not denied, and returns how many jobs were
// fetched. If the reply comes too late, the jobs go back, because their leases may end.
func (p *prefetcher) fetch(ctx context.Context, c *asynqdb.Dequeue, n int) (int, error) {
	began, q := time.Now(), p.queues[c.Queue]
	call := p.scopeOf(c.Queue).queueHealth.Begin()
	found, err := p.db.Dequeue(ctx, c, n)
	call.Note(ctx, err)
	if err != nil {
		q.lostFetch = c
		return 0, err
	}
	q.lostFetch = nil
	p.noteReply(c, len(found), time.Since(began))
	if c.Left { // as if no more jobs had been requested
		n = len(found)
	}
	p.scopeOf(c.Queue).slots.noteArrivals(c.Queue, found)
	p.next, p.giveBackAt = nil, time.Now().Add(startWithin)
	for _, j := range p.withoutBusy(context.WithoutCancel(ctx), found) {
		p.next = append(p.next, p.newAttempt(j, c.Ends))
	}
	p.next = p.withoutEarly(context.WithoutCancel(ctx), p.next)
	if len(found) < n && c.Rest <= 0 {
		q.emptyAt = began
	}
	if len(found) == n && q.hasKeys.Load() {
		offer(p.orderDue)
	}
	if time.Until(c.Ends) < minLease {
		p.giveBackAt = time.Now()
		p.giveBackExpired(ctx)
	} else if len(p.next) > 0 && !p.closed && !p.paused {
		p.acquireAll(ctx, n, began)
	}
	if len(p.next) > 1 {
		p.timer.Reset(startWithin)
	}
	return len(found), nil
}

// noteReply sets the bound of bytes of the next fetch. A repeated fetch had a smaller bound, which
// stays. The bound doubles after a fast reply that was large.
func (p *prefetcher) noteReply(c *asynqdb.Dequeue, jobs int, took time.Duration) {
	switch {
	case c.Bound() < c.MaxBytes:
		p.maxBytes = c.Bound()
		if c.Left {
			p.log.Warn("the connection to Redis is too slow for the jobs of one fetch: fewer are fetched at once", "queue", c.Queue, "jobs", jobs, "bytes", c.Bytes)
		}
	case c.Bytes >= p.maxBytes/2 && took < fastReply:
		p.maxBytes = min(2*p.maxBytes, asynqdb.MaxReply)
	}
}

// withoutBusy returns the fetched jobs that asynq may get now. asynq still has an attempt with the
// ID of each other job. If that attempt does not end in a moment, the job goes back for busyPause.
// It may be a job of another queue, or a job whose last write-back still waits for its reply. Any other
// attempt of a fetched job has lost its lease, for example because Redis has lost its last writes. It is
// canceled, so that its handler does not start any more.
func (p *prefetcher) withoutBusy(ctx context.Context, jobs []asynqdb.Job) []asynqdb.Job {
	var backs []*asynqdb.PutBack
	endBy := time.Now().Add(endingTime)
	free := slices.DeleteFunc(jobs, func(j asynqdb.Job) bool {
		p.cancelLost(p.inFlight.get(j.JobID))
		busy, ending := p.inFlight.isBusy(j.ID)
		for ; busy && ending && time.Now().Before(endBy); busy, ending = p.inFlight.isBusy(j.ID) {
			sleep(ctx, goodbyeTime)
		}
		if busy {
			backs = append(backs, &asynqdb.PutBack{Job: j, At: time.Now().Add(busyPause)})
		}
		return busy
	})
	if len(backs) > 0 {
		p.db.PutBack(ctx, backs[0].Queue, backs...) // if it fails, recovery puts the jobs back
	}
	return free
}

// acquireAll requests permits for the fetched jobs in p.next. If a job was denied within
// deniedWindow, acquireAll waits up to admitTime for the results, and puts denied jobs back. A job
// with any other error goes to asynq, and the handler of Server.wrap reports that error.
//
// acquireAll also notes whether the queue has a backlog. A queue has a backlog if the fetch found
// all n jobs, and each new job among them was denied for at least 2·maxRest. A fetch without new
// jobs changes nothing.
func (p *prefetcher) acquireAll(ctx context.Context, n int, began time.Time) {
	all := p.next
	s, q := all[0].scope, p.queues[all[0].Queue]
	readable := slices.DeleteFunc(slices.Clone(all), func(a *attempt) bool { return a.task == nil })
	s.requestPermits(readable...)
	if time.Since(time.Unix(0, s.deniedAt.Load())) < deniedWindow {
		wait, cancel := context.WithTimeout(ctx, admitTime)
		defer cancel()
		for _, a := range readable {
			if _, ok := usercode.Receive(wait, a.done); !ok {
				break
			}
		}
		p.next = p.putBackDenied(context.WithoutCancel(ctx), all)
	}
	hasNew, hasShort := false, false
	for _, a := range all {
		if !a.Back {
			isLong := a.isDone() && a.decision.Outcome == throttle.Denied && a.decision.RetryAfter >= 2*maxRest
			hasNew, hasShort = true, hasShort || !isLong
		}
	}
	if hasNew {
		if q.backlogTook = time.Since(began); len(all) < n || hasShort {
			q.backlogTook = 0
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
			a.scope.stats.CountEnd(a.statsTask, stats.PutBack, stats.NotRun)
		case !errors.Is(err, asynqdb.ErrNotActive): // with ErrNotActive, the job was deleted, or another server has it
			others = append(others, a)
		}
	}
	return others
}

// repeatLost repeats fetches whose replies were lost, until one returns jobs. It returns an error
// only if the repeated fetch from the given queue fails.
func (p *prefetcher) repeatLost(ctx context.Context, queue string) error {
	for name, q := range p.queues {
		if q.lostFetch == nil {
			continue
		}
		if time.Now().After(q.lostFetch.Ends) {
			q.lostFetch = nil // recovery puts its jobs back
			continue
		}
		if _, err := p.fetch(ctx, q.lostFetch, 0); err != nil && name == queue {
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
	if len(jobs) == 0 || time.Now().Before(p.giveBackAt) {
		return
	}
	p.next = nil
	back := make([]asynqdb.Job, len(jobs))
	for i, a := range jobs {
		back[i] = a.Job
		if a.done != nil {
			back[i].Back, back[i].Msg = true, a.nextPosition().writeTo(a.JobID, a.Msg)
			go a.releaseLeases()
		}
	}
	_ = p.db.GiveBack(ctx, back...)
}

// expire gives back jobs that asynq did not dequeue in time.
func (p *prefetcher) expire() {
	p.lock <- struct{}{}
	defer func() { <-p.lock }()
	p.giveBackExpired(p.calls)
	if len(p.next) > 0 {
		p.timer.Reset(time.Until(p.giveBackAt))
	}
}

// stop gives back all jobs that asynq has not dequeued. After that, dequeue reports empty queues.
func (p *prefetcher) stop() {
	p.lock <- struct{}{}
	defer func() { <-p.lock }()
	p.closed = true
	p.giveBackAll()
}

// setPaused gives back all jobs that asynq has not dequeued, and makes dequeue report empty queues
// while paused is true.
func (p *prefetcher) setPaused(paused bool) {
	p.lock <- struct{}{}
	defer func() { <-p.lock }()
	if p.paused = paused; paused && !p.closed {
		p.giveBackAll()
	}
}

// giveBackAll gives back the fetched jobs that asynq has not dequeued, and those of lost replies.
func (p *prefetcher) giveBackAll() {
	ctx := p.calls
	p.giveBackAt = time.Now()
	p.giveBackExpired(ctx)
	for _, q := range p.queues {
		if q.lostFetch != nil {
			_, _ = p.fetch(ctx, q.lostFetch, 0) // if this fails, recovery puts the jobs back
			p.giveBackAt = time.Now()
			p.giveBackExpired(ctx)
		}
	}
}
