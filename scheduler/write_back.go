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

// writeBack is a call of asynq's that writes a job after an attempt. The field failed is true for
// each failure. The field Failed of Call is true only if a ScriptRetry counts one more retry.
type writeBack struct {
	*asynqdb.Call
	attempt *attempt // an empty one if this server does not have the job
	end     attemptEnd
	message asynqdb.Message // parsed from the call's Msg
	lease   asynqdb.LeaseID // the lease that the call ends
	failed  bool            // whether the call is a ScriptRetry or a ScriptArchive
	crashed bool            // whether asynq writes that the job's worker died
}

// endLease runs a script of asynq's that ends a worker's lease of a job, or replaces the script: a
// job that has not failed is put back, a crash may be forgiven, and an interrupted job keeps its
// position.
func (q *redisClient) endLease(ctx context.Context, c *asynqdb.Call, send func(asynqdb.LeaseID) *redis.Cmd) *redis.Cmd {
	a, end := q.s.inFlight.get(job{Queue: c.Queue, ID: c.ID})
	w := &writeBack{Call: c, attempt: a, end: end, lease: a.lease}
	var cmd *redis.Cmd
	if m, err := asynqdb.ParseMessage(w.Msg); w.Msg != nil && err == nil {
		w.message, w.failed = m, w.Script == asynqdb.ScriptRetry || w.Script == asynqdb.ScriptArchive
		w.crashed = w.failed && m.LastError == asynq.ErrLeaseExpired.Error()
		w.SetMsg(restoreTimeout(w.Msg, m))
		if w.failed {
			cmd = q.replace(ctx, w)
		}
	} else if c.MayAddPending && !w.end.queuedAt.IsZero() {
		// The handler still runs, and the server stops: the job must not wait behind later ones.
		msg := queuePosition{queuedAt: w.end.queuedAt, retryAt: time.Now()}.writeTo(a.job, []byte(a.msg))
		cmd = reply(ctx, q.s.db.GiveBack(ctx, asynqdb.DequeueOf(a.Queue, a.lease), asynqdb.Taken{ID: a.ID, Msg: string(msg), Back: true}))
	}
	if cmd == nil {
		if cmd = send(w.lease); cmd.Err() == nil && w.Msg != nil {
			q.noteAttempt(ctx, w)
		}
	}
	if w.lease.Ended == 0 { // else the attempt may still run here
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
// text of the attempt's put-back, the job failed after all, for example at its timeout, when asynq
// does not wait for the handler.
func (q *redisClient) replace(ctx context.Context, w *writeBack) *redis.Cmd {
	if a := q.s.inFlight.take(w.attempt.job); a != nil { // its handler was never called
		go a.releaseUnused()
	}
	text := w.message.LastError
	if why := w.end.putBack; why != nil && why.Error() == text {
		return reply(ctx, q.s.putBack(ctx, w.attempt, why, q.s.newPutBack(w.attempt, why, w.Msg, w.message.Unique)))
	}
	if w.crashed {
		w.lease.Ended = time.Now().Add(-recovererWaits).Unix()
		return q.forgive(ctx, w)
	}
	// If the context ended first, asynq called RetryDelayFunc with the plain error of the context.
	// That error does not carry the delay of the rule's retry policy, so replace computes the
	// delay.
	for _, err := range []error{context.Canceled, context.DeadlineExceeded} {
		if policy := w.end.retry; policy != nil && w.Script == asynqdb.ScriptRetry && text == err.Error() {
			w.SetAt(time.Now().Add(policy.class(err).Delay(w.attempt.retried)))
		}
	}
	w.SetMsg(queuePosition{queuedAt: w.end.queuedAt, retryAt: w.At}.writeTo(w.attempt.job, w.Msg))
	return nil
}

// newPutBack describes how a job is put back, under the lease of its attempt.
func (s *Server) newPutBack(a *attempt, why *putBackError, msg []byte, unique bool) *asynqdb.PutBack {
	back := &asynqdb.PutBack{ID: a.ID, Msg: msg, At: why.at, Unique: unique, Lease: a.lease}
	if why.denied || why.atOnce() && s.canPromote.Load() {
		_, back.Scope = s.scopeOf(a.Queue).limiter.Scope()
	}
	if why.as != nil {
		back.Msg = asynqdb.WithPayload(msg, why.as.payload)
	}
	back.Msg = why.position.writeTo(a.job, back.Msg)
	return back
}

// putBack puts a job back that waits for permits, or for a time that its handler chose. If the
// job may run again at once, putBack also moves it to the head of its queue. If that fails, asynq's
// next poll moves the job.
//
// The error is the one that asynq expects of its own script: ErrNotActive if asynq's recoverer or
// an operator has taken the job. If Redis does not answer, asynq repeats the call until the job's
// lease ends, and then recovery puts the job back.
func (s *Server) putBack(ctx context.Context, a *attempt, why *putBackError, back *asynqdb.PutBack) error {
	if s.db.PutBack(ctx, a.Queue, back); back.Err != nil {
		return back.Err
	}
	s.inFlight.release(a, true)
	if why.atOnce() && s.canPromote.Load() {
		_, _ = s.db.Promote(ctx, a.Queue, a.ID)
	}
	return nil
}

// forgive writes back a job whose worker died, in place of asynq's recoverer. Usually this package's recovery
// finds such a job first. The first crashes are forgiven: the job runs again and spends no attempt,
// even if the crashed attempt was its last. After forgivenCrashes such crashes forgive returns nil,
// and asynq's own script counts the crash as a failure, so that a job that kills its workers ends
// in the archive.
//
// The count is in a field of the job's hash and is never reset: it counts all crashes of the job.
func (q *redisClient) forgive(ctx context.Context, w *writeBack) *redis.Cmd {
	msg := w.Msg
	if w.Failed {
		msg = asynqdb.WithRetried(msg, w.message.Retried-1)
	}
	forgiven, err := q.s.db.Forgive(ctx, w.Queue, w.ID, msg, w.message.Unique, q.s.forgivenCrashes, w.lease)
	if forgiven || err != nil {
		return reply(ctx, err)
	}
	if w.Script == asynqdb.ScriptArchive { // with a better reason than asynq's
		reason := fmt.Sprintf("its worker died while it ran, again: %d times that was forgiven, after that it counts as a failure", q.s.forgivenCrashes)
		w.SetMsg(asynqdb.WithLastError(w.Msg, reason))
	}
	return nil
}

// noteAttempt stores the end of an attempt that asynq has just written, for headgate's web page and
// commands. It stores failed attempts, and a success after a failure. For a job that succeeds at
// once it makes no call. It ignores errors of Redis.
func (q *redisClient) noteAttempt(ctx context.Context, w *writeBack) {
	end := asynqdb.Attempt{At: time.Now(), Worker: asynqdb.ProcessName(), Took: w.end.took}
	if w.failed {
		end.Error = w.message.LastError
	}
	if w.crashed {
		end.Worker = "" // another worker, whose name is not known
	}
	if w.end.keep || end.Error != "" {
		_ = q.s.db.NoteAttempt(ctx, w.Queue, w.ID, end)
	}
}
