package scheduler

import (
	"context"
	"errors"
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
	attempt *attempt // nil if crashed
	end     attemptEnd
	message asynqdb.Message // parsed from the call's Msg
	isRead  bool            // whether the call has a message
	job     asynqdb.Job     // with the lease that the call ends
	crashed bool            // whether asynq's recoverer writes that the job's worker died
}

// identify returns the write-back of a call. It returns nil if the attempt that the call belongs to
// is over. The messages that asynq's workers write have the number of their attempt, and the
// messages of asynq's recoverer have none. A call without a message belongs to the attempt that
// asynq has.
func (q *redisClient) identify(c *asynqdb.Call) *writeBack {
	id := job{Queue: c.Queue, ID: c.ID}
	m, err := asynqdb.ParseMessage(c.Msg)
	isRead := c.Msg != nil && err == nil
	number := max(m.Timeout, m.Deadline) / disabledOffset
	if isRead && number > 0 {
		c.Msg = asynqdb.WithTimes(c.Msg, m.Timeout%disabledOffset, m.Deadline%disabledOffset)
	}
	if isRead && number == 0 && m.LastError == asynq.ErrLeaseExpired.Error() {
		dead := asynqdb.Job{JobID: id, Msg: c.Msg, Ended: time.Now().Add(-recovererDelay).Unix()}
		return &writeBack{Call: c, message: m, isRead: true, job: dead, crashed: true}
	}
	a := q.s.inFlight.get(id)
	if a == nil || isRead && a.number != number {
		return nil
	}
	return &writeBack{Call: c, attempt: a, end: *a.end.Load(), message: m, isRead: isRead, job: a.Job}
}

// endLease runs a script of asynq's that ends a worker's lease of a job, or replaces the script: a
// job that has not failed is put back, a crash may be forgiven, and an interrupted job keeps its
// position.
//
// If the reply to a call is lost, asynq repeats the call for as long as the lease lasted, with a
// context that has ended. Such a call does nothing, because the job may have its next attempt.
func (q *redisClient) endLease(ctx context.Context, c *asynqdb.Call, text string) *redis.Cmd {
	if ctx.Err() != nil {
		return redis.NewCmdResult(nil, ctx.Err())
	}
	w := q.identify(c)
	if w == nil {
		return redis.NewCmdResult(nil, asynqdb.ErrNotActive)
	}
	a := w.attempt
	if a == nil {
		return q.write(ctx, w, text)
	}
	neverRan := q.s.inFlight.end(a)
	if neverRan {
		go a.releaseLeases()
	}
	cmd := q.write(ctx, w, text)
	isDone := q.s.inFlight.written(a)
	a.scope.slots.noteEnd(q.s.freeSlots())
	if isDone {
		q.s.inFlight.leave(a)
	}
	return cmd
}

// write writes the end of an attempt, or that a job's worker died.
func (q *redisClient) write(ctx context.Context, w *writeBack, text string) *redis.Cmd {
	failed := w.isRead && w.Script != asynqdb.ScriptComplete
	if failed {
		if cmd := q.replace(ctx, w); cmd != nil {
			return cmd
		}
		w.forgetPosition()
	} else if w.MayAddPending && !w.end.queuedAt.IsZero() {
		// The handler still runs, and the server stops: the job must not wait behind later ones.
		w.job.Back, w.job.Msg = true, queuePosition{queuedAt: w.end.queuedAt, retryAt: time.Now()}.writeTo(w.job.JobID, w.job.Msg)
		return redis.NewCmdResult("OK", q.s.db.GiveBack(ctx, w.job))
	}
	w.noteBatch()
	var cmd *redis.Cmd
	retains := w.Script == asynqdb.ScriptDone && w.end.succeeded && w.attempt.rule.Retention > 0
	if retains {
		cmd = w.Retain(ctx, q.UniversalClient, w.job, w.job.Msg, w.attempt.rule.Retention)
	} else {
		cmd = w.RunGuarded(ctx, q.UniversalClient, text, w.job)
	}
	if w.BatchEnd != 0 {
		q.s.batchEnds.note(w.Batch, w.Queue) // also after an error, because Redis may have written the end
	}
	if cmd.Err() == nil && (w.isRead || retains) && (w.end.mustRecord || failed) { // a job that succeeds at once needs no record
		end := asynqdb.Attempt{At: time.Now(), Worker: asynqdb.ProcessName(), Took: w.end.took}
		if failed {
			end.Error = w.message.LastError
		}
		if w.crashed {
			end.Worker = "" // another worker, whose name is not known
		}
		_ = q.s.db.NoteAttempt(ctx, w.Queue, w.ID, end)
	}
	return cmd
}

// forgetPosition removes the queue position of a job that is archived: if an operator runs the job
// again, it waits like a new job, and not before jobs that were enqueued after its first attempt.
func (w *writeBack) forgetPosition() {
	if w.Script == asynqdb.ScriptArchive && w.message.Task.Headers()[queuePositionHeader] != "" {
		w.Msg = asynqdb.WithHeader(w.Msg, queuePositionHeader, "")
	}
}

// noteBatch sets how the job ends for its batch, if it has one. asynq deletes a dropped job with the
// script for a job that is done.
func (w *writeBack) noteBatch() {
	if w.attempt != nil {
		w.Batch = w.attempt.batch
	} else {
		w.Batch = asynqdb.JobHeader(w.job.JobID, w.message.Task.Headers(), asynqdb.HeaderBatch)
	}
	switch {
	case w.Batch == "":
	case w.Script == asynqdb.ScriptArchive:
		w.BatchEnd = asynqdb.BatchFailed
	case w.Script == asynqdb.ScriptDone && !w.end.succeeded:
		w.BatchEnd = asynqdb.BatchDeleted
	case w.Script == asynqdb.ScriptDone, w.Script == asynqdb.ScriptComplete:
		w.BatchEnd = asynqdb.BatchCompleted
	}
}

// replace is called when asynq's call is to write that an attempt has failed. If the job is to be
// put back, or its crash is forgiven, replace writes that and returns the reply. In all other cases
// it returns nil, and endLease sends asynq's call. If the attempt has failed without a crash and is
// retried, replace adds the job's queue position to the message of that call.
//
// The call has only the text of the error with which the attempt ended. If that text is not the
// text of the attempt's put-back, the job has failed after all, for example at its timeout.
//
// After a forgiven crash the job runs again and spends no attempt. After forgivenCrashes crashes
// asynq's own script counts each further crash as a failure, so that a job that kills its workers
// ends in the archive.
func (q *redisClient) replace(ctx context.Context, w *writeBack) *redis.Cmd {
	s, a, text := q.s, w.attempt, w.message.LastError
	if why := w.end.putBack; why != nil && why.Error() == text {
		return redis.NewCmdResult("OK", s.putBack(ctx, a, s.newPutBack(a, why, w.Msg)))
	}
	if w.crashed {
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
	w.Msg = a.withRefusals(w.end.refusals, w.Msg)
	if earliest := w.end.earliestRetry; w.Script == asynqdb.ScriptRetry && w.At.Before(earliest) {
		w.At, w.Msg = spread(a.JobID, earliest, w.Msg)
	}
	if w.Script == asynqdb.ScriptRetry {
		w.Msg = queuePosition{queuedAt: w.end.queuedAt, retryAt: w.At}.writeTo(a.JobID, w.Msg)
	}
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
	msg = a.withRefusals(a.end.Load().refusals, msg)
	if why.told {
		back.At, msg = spread(a.JobID, why.at, msg)
	}
	back.Msg = a.withUnableSince(why.position.writeTo(a.JobID, msg), why.unableSince)
	return back
}

// putBack puts a job back that waits for permits, or for a time that its handler chose. If the
// job may run again at once, putBack also moves it to the head of its queue. If that fails, asynq's
// next poll moves the job.
//
// putBack returns ErrNotActive if asynq's recoverer or an operator has taken the job. If Redis does
// not answer, recovery repeats the put-back under the lease of the same attempt.
func (s *Server) putBack(ctx context.Context, a *attempt, back *asynqdb.PutBack) error {
	s.db.PutBack(ctx, a.Queue, back)
	if back.Err != nil && !errors.Is(back.Err, asynqdb.ErrNotActive) {
		s.inFlight.keepPutBack(a, back)
		return back.Err
	}
	s.inFlight.dropPutBack(a)
	if back.Err == nil && back.Scope != "" && !a.end.Load().putBack.denied {
		_, _ = s.db.Promote(ctx, a.JobID)
	}
	return back.Err
}

// keepPutBack keeps the put-back of an attempt whose end asynq has not written, because its lease
// had ended. Recovery writes it, unless another worker has the job by then.
func (s *Server) keepPutBack(a *attempt) {
	why := a.end.Load().putBack
	if why == nil || !s.inFlight.isUnwritten(a) {
		return
	}
	s.inFlight.keepPutBack(a, s.newPutBack(a, why, asynqdb.WithFailure(a.Msg, why.Error(), time.Now().Unix())))
}
