package scheduler

import (
	"context"
	"fmt"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/asynqdb"
)

const (
	// forgivenCrashes is how many crashes of a job's workers do not count as failures, because
	// deploys and lost machines kill workers, too.
	forgivenCrashes = 3
	// recovererDelay is how long asynq's recoverer waits after the end of a lease before it brings
	// the job back.
	recovererDelay = 30 * time.Second
)

// writeBack is a call of asynq's that writes a job after an attempt.
type writeBack struct {
	*asynqdb.Call
	attempt *attempt
	end     attemptEnd
	message asynqdb.Message // parsed from the call's Msg
	job     asynqdb.Job     // with the lease that the call ends
	crashed bool            // whether asynq writes that the job's worker died
}

// endLease runs a script of asynq's that ends a worker's lease of a job, or replaces the script: a
// job that has not failed is put back, a crash may be forgiven, and an interrupted job keeps its
// position.
func (q *redisClient) endLease(ctx context.Context, c *asynqdb.Call, text string) *redis.Cmd {
	a := q.s.inFlight.get(job{Queue: c.Queue, ID: c.ID})
	if a == nil { // this server does not have the job, so any lease matches
		a = q.s.newAttempt(asynqdb.Job{JobID: job{Queue: c.Queue, ID: c.ID}}, time.Time{})
	}
	w := &writeBack{Call: c, attempt: a, end: *a.end.Load(), job: a.Job}
	m, err := asynqdb.ParseMessage(c.Msg)
	isRead := c.Msg != nil && err == nil
	failed := isRead && c.Script != asynqdb.ScriptComplete
	var cmd *redis.Cmd
	if isRead {
		if m.Timeout >= disabledOffset || m.Deadline >= disabledOffset {
			c.Msg = asynqdb.WithTimes(c.Msg, m.Timeout%disabledOffset, m.Deadline%disabledOffset)
		}
		w.message, w.crashed = m, failed && m.LastError == asynq.ErrLeaseExpired.Error()
		if failed {
			cmd = q.replace(ctx, w)
		}
	} else if c.MayAddPending && !w.end.queuedAt.IsZero() {
		// The handler still runs, and the server stops: the job must not wait behind later ones.
		w.job.Back, w.job.Msg = true, queuePosition{queuedAt: w.end.queuedAt, retryAt: time.Now()}.writeTo(a.JobID, a.Msg)
		cmd = redis.NewCmdResult("OK", q.s.db.GiveBack(ctx, w.job))
	}
	if cmd == nil {
		if kept := a.rule.Retention; c.Script == asynqdb.ScriptDone && kept > 0 {
			cmd = c.Retain(ctx, q.UniversalClient, w.job, a.Msg, kept)
		} else {
			cmd = c.RunGuarded(ctx, q.UniversalClient, text, w.job)
		}
		if cmd.Err() == nil && isRead && (w.end.mustRecord || failed) { // a job that succeeds at once needs no record
			end := asynqdb.Attempt{At: time.Now(), Worker: asynqdb.ProcessName(), Took: w.end.took}
			if failed {
				end.Error = m.LastError
			}
			if w.crashed {
				end.Worker = "" // another worker, whose name is not known
			}
			_ = q.s.db.NoteAttempt(ctx, c.Queue, c.ID, end)
		}
	}
	if !w.crashed { // after a crash, the attempt may still run here
		q.s.inFlight.release(a, cmd.Err() == nil)
	}
	return cmd
}

// replace is called when asynq's call is to write that an attempt has failed. If the job is to be
// put back, or its crash is forgiven, replace writes that and returns the reply. In all other cases
// it returns nil, and endLease sends asynq's call. If the attempt has failed without a crash,
// replace adds the job's queue position to the message of that call.
//
// The call has only the text of the error with which the attempt ended. If that text is not the
// text of the attempt's put-back, the job has failed after all, for example at its timeout.
//
// After a forgiven crash the job runs again and spends no attempt. After forgivenCrashes crashes
// asynq's own script counts each further crash as a failure, so that a job that kills its workers
// ends in the archive.
func (q *redisClient) replace(ctx context.Context, w *writeBack) *redis.Cmd {
	s, a, text := q.s, w.attempt, w.message.LastError
	if a := s.inFlight.take(a.JobID); a != nil { // its handler was never called
		go a.releaseLeases()
	}
	if why := w.end.putBack; why != nil && why.Error() == text {
		return redis.NewCmdResult("OK", s.putBack(ctx, a, s.newPutBack(a, why, w.Msg)))
	}
	if w.crashed {
		w.job.Dequeue, w.job.Ended, w.job.Msg = "", time.Now().Add(-recovererDelay).Unix(), w.Msg
		if w.Failed {
			w.job.Msg = asynqdb.WithRetried(w.Msg, w.message.Retried-1)
		}
		if forgiven, err := s.db.Forgive(ctx, w.job, s.forgivenCrashes); forgiven || err != nil {
			return redis.NewCmdResult("OK", err)
		}
		if w.Script == asynqdb.ScriptArchive { // with a better reason than asynq's
			reason := fmt.Sprintf("its worker died while it ran, again: %d times that was forgiven, after that it counts as a failure", s.forgivenCrashes)
			w.Msg = asynqdb.WithLastError(w.Msg, reason)
		}
		return nil
	}
	// If the context ended first, asynq called RetryDelayFunc with the plain error of the context.
	// That error does not carry the delay of the rule's retry policy, so replace computes the
	// delay.
	for _, err := range []error{context.Canceled, context.DeadlineExceeded} {
		if policy := w.end.retryPolicy; policy != nil && w.Script == asynqdb.ScriptRetry && text == err.Error() {
			class, failed := call(s, "ErrorClass.Is", func() ErrorClass { return policy.class(err) })
			if failed != nil {
				class.Backoff = policy.Backoff
			}
			w.At = time.Now().Add(class.Delay(a.retried))
		}
	}
	w.Msg = queuePosition{queuedAt: w.end.queuedAt, retryAt: w.At}.writeTo(a.JobID, w.Msg)
	return nil
}

// newPutBack describes how a job is put back, under the lease of its attempt.
func (s *Server) newPutBack(a *attempt, why *putBackError, msg []byte) *asynqdb.PutBack {
	back := &asynqdb.PutBack{Job: a.Job, At: why.at}
	if why.denied || !why.at.After(time.Now()) && s.canPromote.Load() {
		_, back.Scope = a.scope.limiter.Scope()
	}
	if why.newPayload != nil {
		msg = asynqdb.WithPayload(msg, why.newPayload.payload)
	}
	back.Msg = why.position.writeTo(a.JobID, msg)
	return back
}

// putBack puts a job back that waits for permits, or for a time that its handler chose. If the
// job may run again at once, putBack also moves it to the head of its queue. If that fails, asynq's
// next poll moves the job.
//
// putBack returns ErrNotActive if asynq's recoverer or an operator has taken the job. If Redis does
// not answer, asynq repeats the call until the job's lease ends. After that, recovery puts the job
// back.
func (s *Server) putBack(ctx context.Context, a *attempt, back *asynqdb.PutBack) error {
	if s.db.PutBack(ctx, a.Queue, back); back.Err != nil {
		return back.Err
	}
	s.inFlight.release(a, true)
	if back.Scope != "" && !a.end.Load().putBack.denied {
		_, _ = s.db.Promote(ctx, a.JobID)
	}
	return nil
}
