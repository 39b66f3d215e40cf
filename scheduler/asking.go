package scheduler

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/throttle"
)

// asking is the question whether a job may run that was taken from its queue, and the
// answer.
type asking struct {
	attempt
	unique   bool          // whether it has a Unique lock
	lease    time.Time     // until when asynq has the job, unless it extends that
	times    int           // it has asked before, and has not begun
	place    int           // among those that ask together
	ruleBy   time.Time     // until when its rule must have returned
	hasRule  atomic.Bool   // whether it has, or that time is over
	answered chan struct{} // closed when what follows is known
	decision throttle.Decision
	err      error     // why the job does not run, or nil
	panicked any       // what a rule panicked with, or nil
	began    time.Time // when the limiter was asked, by this process's clock
	ended    time.Time // when it had answered
	begins   time.Time // from when on the job may begin that was allowed
}

const (
	// mostAhead is how many jobs are taken at once at most, and so ask: Redis does nothing
	// else meanwhile.
	mostAhead = 64
	// lately is for how long after a denial jobs are kept from asynq until it is known
	// which may run.
	lately = time.Second
	// freshTime is how old permits may be when the handler begins: a permit is for a
	// moment.
	freshTime = 100 * time.Millisecond
)

// inOrder has the limiter asked for one job after the other, in the order in which they
// were taken. Those that come while it answers ask together.
type inOrder struct {
	acquire func([]*asking) (denied bool) // asks the limiter for jobs' permits

	mu      sync.Mutex
	waiting []*asking
	busy    bool
	denied  time.Time // when a job was denied last
}

// add has jobs ask whose rules are known.
func (o *inOrder) add(ready []*asking) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, q := range ready {
		if q.began = time.Now(); q.needsAnswer() {
			o.waiting = append(o.waiting, q)
		} else {
			q.answer()
		}
	}
	if len(o.waiting) > 0 && !o.busy {
		o.busy = true
		go o.askAll()
	}
}

// askAll asks until nobody waits.
func (o *inOrder) askAll() {
	for {
		o.mu.Lock()
		n := min(len(o.waiting), mostAhead)
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
			q.answer()
		}
	}
}

// deniesLately reports whether a job was denied a short while ago.
func (o *inOrder) deniesLately() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return time.Since(o.denied) < lately
}

// needsAnswer reports whether the limiter is to be asked.
func (q *asking) needsAnswer() bool {
	return q.err == nil && q.panicked == nil && len(q.rule.Needs) > 0
}

// answer has it known what becomes of the job.
func (q *asking) answer() {
	q.ended = time.Now()
	q.begins = q.ended.Add(q.decision.BeginIn)
	close(q.answered)
}

// wait returns when the answer is there, or the context is over.
func (q *asking) wait(ctx context.Context) error {
	select {
	case <-q.answered:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// waitToBegin returns when the job's permits exist, or the context is over. A job is called
// some milliseconds before, so that many can be called together.
func (q *asking) waitToBegin(ctx context.Context) {
	timer := time.NewTimer(time.Until(q.begins))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// stale reports whether permits have existed for too long for the job to begin under them.
func (q *asking) stale() bool { return q.decision.OK() && q.decision.Age() > freshTime }

// anew is the question asked once more, of a job that is not begun under the permits that it
// was allowed.
func (q *asking) anew() *asking {
	a := q.attempt
	a.stood, a.isNew = a.unbegun(q.decision), false
	return &asking{attempt: a, unique: q.unique, lease: q.lease, times: q.times + 1}
}

// standing is where a job stands that is given back if its answer is there: zero if that
// has not allowed it.
func (q *asking) standing() stood {
	select {
	case <-q.answered:
		if q.decision.OK() {
			return q.unbegun(q.decision)
		}
	default:
	}
	return stood{}
}

// denied is why a job waits for its permits, if that is what it does.
func (q *asking) denied() (why *putBackError, ok bool) {
	if q == nil {
		return nil, false
	}
	select {
	case <-q.answered:
		why, ok = errors.AsType[*putBackError](q.err)
		return why, ok
	default:
		return nil, false
	}
}
