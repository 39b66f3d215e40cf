package scheduler

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/stats"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// job names a job in asynq: an ID is unique in its queue only.
type job = throttle.JobID

// attempt is one try to run a job, from the dequeue that fetched the job until asynq has written
// how the try ended. Each fetch of a denied job is an attempt here, though asynq does not count
// attempts that were denied.
type attempt struct {
	asynqdb.Job // as the dequeue took it
	scope       *scope
	task        *asynq.Task // nil if the message cannot be read, which asynq reports
	statsTask   stats.Task  // the queue and type that count the job in the stats
	retried     int         // asynq's count of the job's failures
	maxRetry    int
	timeout     time.Duration // of each attempt, as the job's producer has set it; zero means none
	deadline    time.Time     // of all attempts together; zero means none
	position    queuePosition
	isNew       bool      // whether the job has never been put back, and has never failed
	leaseEnd    time.Time // the end of the lease as the dequeue set it; asynq may extend the lease
	restarts    int       // how often the permits were too old before the handler started

	done     chan struct{} // closed when the next five fields are set; nil before the request
	rule     Rule
	decision waitdb.Decision // the limiter's; zero without a request, or if the job runs without permits
	err      error           // why the job does not run, or nil
	sentAt   time.Time       // when the request was queued, which is before it was sent
	startAt  time.Time       // when the handler may start

	// inFlight.mu guards the next three fields.
	taken bool      // whether asynq has called the handler, or ended the attempt without that call
	slot  bool      // whether the attempt occupies a worker slot
	until time.Time // when the server may forget an attempt that has no slot

	end     atomic.Pointer[attemptEnd] // never nil; replaced by the goroutine that runs the handler
	began   time.Time                  // when the handler started
	reports sync.Mutex                 // held while a report changes decision.Taken or the latency
	latency time.Duration              // from the last ReportLatency; zero without one
}

// attemptEnd is what the server must know when asynq writes the end of an attempt.
type attemptEnd struct {
	queuedAt time.Time // when the job first requested permits; zero until the handler runs
	keep     bool      // whether to record the attempt: it or an earlier attempt of the job failed
	took     time.Duration
	retry    *RetryPolicy // of the job's rule; nil until the handler runs
	// putBack is nil if the job is not put back. After the last attempt asynq would archive the job
	// whatever the error is. Therefore redisClient puts the job back itself.
	putBack *putBackError
}

// newAttempt returns the attempt of a job, fetched or not. The attempt's task is nil if asynq's
// message is not valid.
func (s *Server) newAttempt(j asynqdb.Job, leaseEnd time.Time) *attempt {
	a := &attempt{Job: j, scope: s.scopeOf(j.Queue), leaseEnd: leaseEnd}
	a.end.Store(&attemptEnd{})
	m, err := asynqdb.ParseMessage(j.Msg)
	if err != nil {
		return a
	}
	a.task = m.Task()
	a.statsTask = stats.Task{Queue: a.Queue, Type: a.task.Type()}
	a.retried, a.maxRetry = m.Retried, m.MaxRetry
	a.timeout = time.Duration(max(0, m.Timeout%disabledOffset)) * time.Second
	if deadline := m.Deadline % disabledOffset; deadline > 0 {
		a.deadline = time.Unix(deadline, 0)
	}
	if a.isNew = !a.Back && m.FailedAt == 0; !a.isNew {
		a.position = queuePositionOf(a.JobID, a.task)
	}
	return a
}

// isDone reports whether the request for permits has a result.
func (a *attempt) isDone() bool {
	select {
	case <-a.done:
		return true
	default:
		return false
	}
}

// outcome returns how asynq ends an attempt that returns err. The order of the cases is asynq's: a
// passed deadline comes before the handler's error, and RevokeTask comes before SkipRetry.
func (a *attempt) outcome(ctx context.Context, err error) stats.AttemptEnd {
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		later, isLater := errors.AsType[*putBackError](err)
		switch {
		case err == nil:
			return stats.Done
		case isLater && later.denied:
			return stats.PutBack
		case isLater:
			return stats.RetryAfter
		case errors.Is(err, asynq.RevokeTask):
			return stats.Dropped
		case errors.Is(err, asynq.SkipRetry):
			return stats.Archived
		}
	}
	if a.retried >= a.maxRetry {
		return stats.Archived
	}
	return stats.Failed
}

// expiredError returns the error of a job whose deadline has passed. It returns nil if the deadline
// is still to come, or if the job has none.
func (a *attempt) expiredError() error {
	if a.deadline.IsZero() || time.Now().Before(a.deadline) {
		return nil
	}
	err := fmt.Errorf("too late: its deadline %s has passed", a.deadline.UTC().Format(time.RFC3339))
	if a.rule.OnMaxWait == ActionDrop {
		return fmt.Errorf("%w: %w", err, asynq.RevokeTask)
	}
	return &attemptError{error: err, final: true}
}

// inFlight holds a server's attempts from when asynq gets the job until asynq has written to Redis
// how the attempt ended. It is safe for concurrent use.
type inFlight struct {
	mu       sync.Mutex
	attempts map[job]*attempt
	slots    int       // worker slots that attempts occupy
	sweep    time.Time // when old attempts are removed next
}

// writeBackTime is the minimum time for which an attempt without a slot is kept: asynq tries to
// write its end until the lease ends, after 30 s.
const writeBackTime = time.Minute

// add adds the attempt of a job that asynq gets. An earlier attempt of the job loses its slot.
func (f *inFlight) add(a *attempt) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.attempts == nil {
		f.attempts = map[job]*attempt{}
	}
	now := time.Now()
	if now.After(f.sweep) {
		f.sweep = now.Add(writeBackTime)
		maps.DeleteFunc(f.attempts, func(_ job, a *attempt) bool { return !a.slot && now.After(a.until) })
	}
	if before := f.attempts[a.JobID]; before != nil && before.slot {
		before.slot = false
		f.slots--
	}
	a.slot = true
	f.slots++
	f.attempts[a.JobID] = a
}

// get returns the attempt of a job, or nil.
func (f *inFlight) get(j job) *attempt {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.attempts[j]
}

// take returns the attempt of a job for the caller to run or to end, and marks the attempt as
// taken. It returns nil if the job has no attempt, or if an earlier call has taken the attempt.
func (f *inFlight) take(j job) *attempt {
	f.mu.Lock()
	defer f.mu.Unlock()
	a := f.attempts[j]
	if a == nil || a.taken {
		return nil
	}
	a.taken = true
	return a
}

// release frees the slot of an attempt. If written says that the attempt's end is in Redis, release
// also removes the attempt. A later attempt of the job stays.
func (f *inFlight) release(a *attempt, written bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if a.slot {
		a.slot, a.until = false, time.Now().Add(writeBackTime)
		f.slots--
	}
	if written && f.attempts[a.JobID] == a {
		delete(f.attempts, a.JobID)
	}
}

// busy returns how many slots attempts occupy.
func (f *inFlight) busy() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.slots
}

// putsBack reports whether a job with that ID is being put back, in any queue. It looks at all
// attempts. That is cheap enough, because it is called only when asynq is about to archive a job.
func (f *inFlight) putsBack(id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for j, a := range f.attempts {
		if j.ID == id && a.end.Load().putBack != nil {
			return true
		}
	}
	return false
}
