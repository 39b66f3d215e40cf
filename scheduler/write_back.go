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
	// forgivenCrashes is how often a job's worker may die before that counts as a failure. Deploys
	// and lost machines kill workers, and the job is not to blame. A job that kills its worker does
	// so each time.
	forgivenCrashes = 3
	// recovererWaits is how long asynq's recoverer waits after the end of a lease before it brings
	// the job back.
	recovererWaits = 30 * time.Second
)

// endLease runs a script of asynq's that ends a worker's lease of a job, or replaces the script: a
// job that has not failed is put back, a crash may be forgiven, and an interrupted job keeps its
// position.
func (q *redisClient) endLease(ctx context.Context, c *asynqdb.Call, send func(asynqdb.LeaseID) *redis.Cmd) *redis.Cmd {
	a := q.inFlight.get(job{Queue: c.Queue, ID: c.ID})
	w := &writeBack{Call: c, attempt: a, end: a.ending(), lease: a.lease}
	var cmd *redis.Cmd
	if m, err := asynqdb.ParseMessage(w.Msg); w.Msg != nil && err == nil {
		w.message = m
		w.SetMsg(restoreTimeout(w.Msg, m))
		cmd = q.replace(ctx, w)
	} else if c.MayAddPending {
		cmd = q.requeue(ctx, w)
	}
	if cmd == nil {
		if cmd = send(w.lease); cmd.Err() == nil && w.Msg != nil {
			q.noteAttempt(ctx, w)
		}
	}
	if w.lease.Ended == 0 { // else the attempt may still run here
		q.inFlight.release(a, cmd.Err() == nil)
	}
	return cmd
}

// writeBack is a call of asynq's that writes a job after an attempt.
type writeBack struct {
	*asynqdb.Call
	attempt *attempt // an empty one if this server does not have the job
	end     attemptEnd
	message asynqdb.Message // parsed from the call's Msg
	lease   asynqdb.LeaseID // that the call ends
}

// failed reports whether asynq writes that the attempt has failed.
func (w *writeBack) failed() bool {
	return w.Script == asynqdb.ScriptRetry || w.Script == asynqdb.ScriptArchive
}

// crashed reports whether asynq writes that the job's worker died.
func (w *writeBack) crashed() bool { return w.message.LastError == asynq.ErrLeaseExpired.Error() }

// putsBack reports whether the attempt puts its job back. The message has only the text of the
// error with which the attempt ended. If that text is not the text of the put-back, the job
// failed after all, for example at its timeout, when asynq does not wait for the handler.
func (w *writeBack) putsBack() bool {
	return w.end.putBack != nil && w.end.putBack.Error() == w.message.LastError
}

// replace writes the job in place of asynq's call. It returns nil if asynq's call is right, because
// the job is done or has failed. A failed job gets its queue position into its message.
func (q *redisClient) replace(ctx context.Context, w *writeBack) *redis.Cmd {
	if !w.failed() {
		return nil
	}
	if a := q.inFlight.take(w.attempt.job); a != nil { // its handler was never called
		go a.releaseUnused()
	}
	if w.putsBack() {
		return reply(ctx, q.putBack(ctx, w.attempt, w.end.putBack, q.newPutBack(w.attempt, w.end.putBack, w.Msg, w.message.Unique)))
	}
	if w.crashed() {
		w.lease.Ended = time.Now().Add(-recovererWaits).Unix()
		return q.crashed(ctx, w)
	}
	if delay, ok := w.delay(); ok {
		w.SetAt(time.Now().Add(delay))
	}
	w.SetMsg(queuePosition{queuedAt: w.end.queuedAt, retryAt: w.At}.writeTo(w.attempt.job, w.Msg))
	return nil
}

// delay returns the delay by the rule's policy for a job whose context ended before its handler
// returned. In that case asynq asks RetryDelayFunc for the delay with the context's error,
// which does not have the policy's delay.
func (w *writeBack) delay() (time.Duration, bool) {
	text := w.message.LastError
	for _, err := range []error{context.Canceled, context.DeadlineExceeded} {
		if policy := w.end.retry; policy != nil && w.Script == asynqdb.ScriptRetry && text == err.Error() {
			return policy.class(err).Delay(w.attempt.retried), true
		}
	}
	return 0, false
}

// reply returns the reply to asynq in place of its own script's.
func reply(ctx context.Context, err error) *redis.Cmd {
	cmd := redis.NewCmd(ctx)
	cmd.SetVal("OK")
	cmd.SetErr(err)
	return cmd
}

// newPutBack describes how a job is put back, under the lease of its attempt.
func (q *redisClient) newPutBack(a *attempt, why *putBackError, msg []byte, unique bool) *asynqdb.PutBack {
	back := &asynqdb.PutBack{ID: a.ID, Msg: msg, At: why.at, Unique: unique, Lease: a.lease}
	if why.denied || why.atOnce() && q.canPromote.Load() {
		_, back.Scope = q.scopeOf(a.Queue).limiter.Scope()
	}
	if why.as != nil {
		back.Msg = asynqdb.WithPayload(msg, why.as.payload)
	}
	back.Msg = why.position.writeTo(a.job, back.Msg)
	return back
}

// putBack puts a job back that waits for permits, or for a time that its handler chose. A job
// without a wait is promoted like a granted one; if that fails, asynq's next poll brings it.
//
// The error is the one that asynq expects of its own script: ErrNotActive if asynq's recoverer or
// an operator has the job. If Redis does not answer, asynq repeats the call until the job's lease
// ends, and then recovery puts the job back.
func (q *redisClient) putBack(ctx context.Context, a *attempt, why *putBackError, back *asynqdb.PutBack) error {
	if q.db.PutBack(ctx, a.Queue, back); back.Err != nil {
		return back.Err
	}
	q.inFlight.release(a, true)
	if why.atOnce() && q.canPromote.Load() {
		_, _ = q.db.Promote(ctx, a.Queue, a.ID)
	}
	return nil
}

// requeue gives back a job whose handler still runs when the server stops. The job's message gets
// its queue position, so that the job does not wait behind later ones. requeue returns nil for a
// job that was in no lane, which asynq's own script gives back.
func (q *redisClient) requeue(ctx context.Context, w *writeBack) *redis.Cmd {
	if w.end.queuedAt.IsZero() {
		return nil
	}
	a := w.attempt
	msg := queuePosition{queuedAt: w.end.queuedAt, retryAt: time.Now()}.writeTo(a.job, []byte(a.msg))
	return reply(ctx, q.db.GiveBack(ctx, asynqdb.DequeueOf(a.Queue, a.lease), asynqdb.Taken{ID: a.ID, Msg: string(msg), Back: true}))
}

// crashed writes back a job whose worker died, in place of asynq's recoverer. Usually recovery
// finds such a job first. The first crashes are forgiven: the job runs again and spends no attempt,
// even if it was on its last. After that crashed returns nil, and asynq's own script counts the
// crash as a failure, so that a job that kills its workers ends in the archive.
//
// The count is in a field of the job's hash and is never reset: it counts all crashes of the job.
func (q *redisClient) crashed(ctx context.Context, w *writeBack) *redis.Cmd {
	msg := w.Msg
	if w.Failed {
		msg = asynqdb.WithRetried(msg, w.message.Retried-1)
	}
	forgiven, err := q.db.Forgive(ctx, w.Queue, w.ID, msg, w.message.Unique, q.forgivenCrashes, w.lease)
	if forgiven || err != nil {
		return reply(ctx, err)
	}
	if w.Script == asynqdb.ScriptArchive { // with a better reason than asynq's
		reason := fmt.Sprintf("its worker died while it ran, again: %d times that was forgiven, after that it counts as a failure", q.forgivenCrashes)
		w.SetMsg(asynqdb.WithLastError(w.Msg, reason))
	}
	return nil
}

// noteAttempt stores the end of an attempt that asynq has just written, for the page and the
// commands. It stores failed attempts, and a success after a failure. For a job that succeeds at
// once it makes no call. It ignores errors of Redis.
func (q *redisClient) noteAttempt(ctx context.Context, w *writeBack) {
	end := asynqdb.Attempt{At: time.Now(), Worker: asynqdb.ProcessName(), Took: w.end.took}
	if w.failed() {
		end.Error = w.message.LastError
		if w.crashed() {
			end.Worker = "" // another worker, whose name is not known
		}
	}
	if w.end.keep || end.Error != "" {
		_ = q.db.NoteAttempt(ctx, w.Queue, w.ID, end)
	}
}
