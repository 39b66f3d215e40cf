package scheduler

import (
	"context"
	"errors"
	"fmt"
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
// how the try ended. Each fetch of a job is an attempt here, even if the job is denied. asynq does
// not count denied attempts.
type attempt struct {
	asynqdb.Job // as the dequeue returned it
	scope       *scope
	task        *asynq.Task // nil if the message is not valid
	statsTask   stats.Task
	retried     int // asynq's count of the job's failures
	maxRetry    int
	timeout     time.Duration // for each attempt; zero means none
	deadline    time.Time     // for all attempts together; zero means none
	position    queuePosition
	batch       string    // the job's batch, or empty
	unableSince time.Time // since when no worker could run the job; zero if a worker could
	refusals    refusals  // before this attempt
	isNew       bool      // whether the job was never put back and never failed
	leaseEnd    time.Time // the end of the lease as the dequeue set it; asynq may extend the lease
	staleRuns   int       // how often run has returned stale

	done            chan struct{} // closed when the next five fields are set; nil before the request
	rule            Rule
	decision        waitdb.Decision // zero if no permits were requested, or the job runs without them
	err             error           // why the job does not run, or nil
	requestQueuedAt time.Time
	startAt         time.Time // when the handler may start

	number int64 // among the attempts that asynq gets: see inFlight.add
	// inFlight.mu guards the next six fields.
	isTaken    bool // whether the handler was called, or asynq ended the attempt without it
	isEnding   bool // whether asynq's call that writes the attempt's end has begun
	isReturned bool // whether the handler has returned
	isLeft     bool // whether asynq is done with the attempt
	hasSlot    bool
	asynq      *runContext // parent of the context that asynq made; nil until the handler is called

	end      atomic.Pointer[attemptEnd] // never nil; replaced by the goroutine that runs the handler
	endTimer atomic.Pointer[time.Timer] // see boundEnd; nil until the handler has returned
	began    time.Time                  // when the handler started
	reports  sync.Mutex                 // held while a report changes decision.Taken or the latency
	latency  time.Duration              // from the last ReportLatency; zero without one
}

// attemptEnd is what the server must know when asynq writes the end of an attempt.
type attemptEnd struct {
	queuedAt    time.Time // when the job first requested permits; zero until the handler runs
	mustRecord  bool      // whether this attempt of the job, or an earlier one, failed
	took        time.Duration
	succeeded   bool         // whether the handler returned nil. asynq deletes a dropped job with the same script
	retryPolicy *RetryPolicy // the rule's Retry; nil until the handler runs
	// earliestRetry is the time before which a failed job does not run again; zero without one.
	earliestRetry time.Time
	refusals      refusals // in a row: before the handler runs, those of earlier attempts
	// putBack is nil if the job is not put back. redisClient itself puts the job back, because
	// asynq would archive the job on its last attempt.
	putBack *putBackError
}

// newAttempt returns the attempt of a job. The attempt's task is nil if the job's message is not
// valid.
func (s *Server) newAttempt(j asynqdb.Job, leaseEnd time.Time) *attempt {
	a := &attempt{Job: j, scope: s.scopeOf(j.Queue), leaseEnd: leaseEnd}
	a.end.Store(&attemptEnd{})
	m, err := asynqdb.ParseMessage(j.Msg)
	if err != nil {
		return a
	}
	a.task = m.Task
	a.statsTask = stats.Task{Queue: a.Queue, Type: a.task.Type()}
	a.retried, a.maxRetry = m.Retried, m.MaxRetry
	a.timeout = time.Duration(max(0, m.Timeout%disabledOffset)) * time.Second
	if deadline := m.Deadline % disabledOffset; deadline > 0 {
		a.deadline = time.Unix(deadline, 0)
	} else if a.timeout == 0 {
		a.timeout = asynqDefaultTimeout
	}
	a.batch = asynqdb.JobHeader(a.JobID, a.task.Headers(), asynqdb.HeaderBatch)
	a.unableSince = a.readUnableSince()
	if a.isNew = !a.Back && m.FailedAt == 0; !a.isNew {
		a.position, a.refusals = queuePositionOf(a.JobID, a.task), refusalsOf(a.JobID, a.task.Headers())
		a.end.Store(&attemptEnd{refusals: a.refusals})
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
