package scheduler

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/throttle"
)

// acquireRequest asks the limiter for the permits of one fetched job, and holds the result.
type acquireRequest struct {
	attempt
	unique       bool          // whether it has a Unique lock
	leaseEnd     time.Time     // until when asynq has the job, unless it extends that
	retries      int           // it has asked before, and has not begun
	index        int           // among those that ask together
	ruleDeadline time.Time     // until when its rule must have returned
	hasRule      atomic.Bool   // whether it has, or that time is over
	done         chan struct{} // closed when what follows is known
	decision     throttle.Decision
	err          error     // why the job does not run, or nil
	panicked     any       // what a rule panicked with, or nil
	sentAt       time.Time // when the limiter was asked, by this process's clock
	finishedAt   time.Time // when it had answered
	startAt      time.Time // from when on the job may begin that was allowed
}

const (
	// maxBatch is how many jobs are fetched at once at most, and how many request permits in one
	// script: Redis serves no other client meanwhile.
	maxBatch = 64
	// deniedRecently is for how long after a denial jobs are kept from asynq until it is known
	// which of them may run.
	deniedRecently = time.Second
	// freshTime is how old permits may be when the handler starts: a permit is for one moment.
	freshTime = 100 * time.Millisecond
)

// requestQueue sends requests to the limiter in the order in which the jobs were fetched. Requests
// that arrive while the limiter answers go together with the next call.
type requestQueue struct {
	acquire func([]*acquireRequest) (denied bool) // asks the limiter for jobs' permits

	mu      sync.Mutex
	waiting []*acquireRequest
	busy    bool
	denied  time.Time // when a job was denied last
}

// add queues the requests of jobs whose rules are known.
func (o *requestQueue) add(ready []*acquireRequest) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, q := range ready {
		if q.sentAt = time.Now(); q.needsAnswer() {
			o.waiting = append(o.waiting, q)
		} else {
			q.finish()
		}
	}
	if len(o.waiting) > 0 && !o.busy {
		o.busy = true
		go o.sendAll()
	}
}

// sendAll sends requests until none is left.
func (o *requestQueue) sendAll() {
	for {
		o.mu.Lock()
		n := min(len(o.waiting), maxBatch)
		some := o.waiting[:n:n]
		if o.waiting, o.busy = o.waiting[n:], n > 0; n == 0 {
			o.waiting = nil
		}
		o.mu.Unlock()
		if n == 0 {
			return
		}
		if o.acquire(some) {
			o.mu.Lock()
			o.denied = time.Now()
			o.mu.Unlock()
		}
		for _, q := range some {
			q.finish()
		}
	}
}

// deniedRecently reports whether a job was denied within the last second.
func (o *requestQueue) deniedRecently() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return time.Since(o.denied) < deniedRecently
}

// needsAnswer reports whether the limiter must be asked.
func (q *acquireRequest) needsAnswer() bool {
	return q.err == nil && q.panicked == nil && len(q.rule.Needs) > 0
}

// finish records the time and publishes the result by closing done. It must be called exactly once.
func (q *acquireRequest) finish() {
	q.finishedAt = time.Now()
	q.startAt = q.finishedAt.Add(q.decision.BeginIn)
	close(q.done)
}

// wait returns when the result is there, or the context is over.
func (q *acquireRequest) wait(ctx context.Context) error {
	select {
	case <-q.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// waitToBegin returns when the job's permits exist, or the context is over. A waiting job is
// granted its permits some milliseconds before they exist, so that many jobs can be granted in one
// call.
func (q *acquireRequest) waitToBegin(ctx context.Context) {
	timer := time.NewTimer(time.Until(q.startAt))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// stale reports whether the permits have existed for too long for the job to start under them.
func (q *acquireRequest) stale() bool { return q.decision.OK() && q.decision.Age() > freshTime }

// retry returns a new request for a job that was allowed and did not start in time.
func (q *acquireRequest) retry() *acquireRequest {
	a := q.attempt
	a.position, a.isNew = a.notStarted(q.decision), false
	return &acquireRequest{attempt: a, unique: q.unique, leaseEnd: q.leaseEnd, retries: q.retries + 1}
}

// queuePosition returns the position of a job that goes back to its queue. It is zero unless the
// job was allowed.
func (q *acquireRequest) queuePosition() queuePosition {
	select {
	case <-q.done:
		if q.decision.OK() {
			return q.notStarted(q.decision)
		}
	default:
	}
	return queuePosition{}
}

// denied returns why the job waits for permits, if it was denied.
func (q *acquireRequest) denied() (why *putBackError, ok bool) {
	if q == nil {
		return nil, false
	}
	select {
	case <-q.done:
		why, ok = errors.AsType[*putBackError](q.err)
		return why, ok
	default:
		return nil, false
	}
}
