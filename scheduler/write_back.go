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
	// and machines that go away kill workers through no fault of the job's; a job that takes its
	// worker with it does so each time.
	forgivenCrashes = 3
	// recovererWaits is how long ago a lease had ended at least when asynq's recoverer brings its
	// job back.
	recovererWaits = 30 * time.Second
)

// endLease runs a script of asynq's that takes an active job from its worker, or does something
// else in its place: a job that has not failed is put back, a crash may be forgiven, and an
// interrupted job keeps its position.
func (q *redisClient) endLease(ctx context.Context, c *asynqdb.Call, send func(asynqdb.LeaseID) *redis.Cmd) *redis.Cmd {
	a := q.inFlight.get(job{Queue: c.Queue, ID: c.ID})
	w := &writeBack{Call: c, attempt: a, end: a.ending(), lease: a.lease}
	var cmd *redis.Cmd
	switch {
	case w.decode():
		cmd = q.instead(ctx, w)
	case c.MayAddPending:
		cmd = q.requeue(ctx, w)
	}
	if cmd == nil {
		if cmd = send(w.lease); cmd.Err() == nil && w.Msg != nil {
			q.noteAttempt(ctx, w)
		}
	}
	switch {
	case w.lease.Ended != 0: // the attempt may run here still
	case cmd.Err() == nil:
		q.inFlight.written(a)
	default:
		q.inFlight.freeSlot(a)
	}
	return cmd
}

// writeBack is one of asynq's calls that write a job after an attempt.
type writeBack struct {
	*asynqdb.Call
	attempt *attempt // an empty one if this server does not have the job
	end     attemptEnd
	message asynqdb.Message // decoded from the call's Msg
	lease   asynqdb.LeaseID // that the call means
}

// decode reads the message of a call that writes a job, and gives the job its own timeout and
// deadline back. It reports false for any other call, and for a message that cannot be read.
func (w *writeBack) decode() bool {
	if w.Msg == nil {
		return false
	}
	m, err := asynqdb.ParseMessage(w.Msg)
	if err != nil {
		return false
	}
	w.message = m
	w.SetMsg(restoreTimeout(w.Msg, m))
	return true
}

// failed reports whether asynq writes that the attempt has failed.
func (w *writeBack) failed() bool {
	return w.Script == asynqdb.ScriptRetry || w.Script == asynqdb.ScriptArchive
}

// crashed reports whether asynq writes that the job's worker died.
func (w *writeBack) crashed() bool { return w.message.LastError == asynq.ErrLeaseExpired.Error() }

// putsBack reports whether the attempt puts its job back. The error's text in the message is all
// that says here why the attempt ended. With another text the job failed after all, for example by
// its timeout: asynq does not wait for the handler then.
func (w *writeBack) putsBack() bool {
	return w.end.putBack != nil && w.end.putBack.Error() == w.message.LastError
}

// instead does what replaces asynq's call. It returns nil if asynq writes the job itself, because
// the job is done or has failed. The message of a failed job gets its queue position.
func (q *redisClient) instead(ctx context.Context, w *writeBack) *redis.Cmd {
	if !w.failed() {
		return nil
	}
	if a := q.inFlight.take(w.attempt.job); a != nil { // its handler was never called
		go q.prefetcher.jobs.releaseUnused(a)
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

// delay returns how long a job waits by its rule's policy if its context ended before its handler
// returned. asynq asks for the delay with the context's error then, and without the job.
func (w *writeBack) delay() (time.Duration, bool) {
	text := w.message.LastError
	for _, err := range []error{context.Canceled, context.DeadlineExceeded} {
		if policy := w.end.retry; policy != nil && w.Script == asynqdb.ScriptRetry && text == err.Error() {
			return policy.class(err).Delay(w.attempt.retried), true
		}
	}
	return 0, false
}

// reply is what asynq gets in place of its own script's answer.
func reply(ctx context.Context, err error) *redis.Cmd {
	cmd := redis.NewCmd(ctx)
	cmd.SetVal("OK")
	cmd.SetErr(err)
	return cmd
}

// newPutBack describes how a job is put back, under the lease of its attempt.
func (q *redisClient) newPutBack(a *attempt, why *putBackError, msg []byte, unique bool) *asynqdb.PutBack {
	back := &asynqdb.PutBack{ID: a.ID, Msg: msg, At: why.at, Unique: unique, Lease: a.lease}
	if why.denied || why.atOnce() && q.promotes.Load() {
		_, back.Scope = q.scopeOf(a.Queue).limiter.Scope()
	}
	if why.as != nil {
		back.Msg = asynqdb.WithPayload(msg, why.as.payload)
	}
	back.Msg = why.position.writeTo(a.job, back.Msg)
	return back
}

// putBack writes a job that waits for permits, or for a time of its handler's choice. A job that is
// to come at once is moved on as if it had been granted; if that fails, asynq's next poll brings it.
//
// The error is the one that asynq expects of its own script. It is ErrNotActive if asynq's recoverer
// or an operator has the job. If Redis does not answer, asynq repeats the call until the job's lease
// ends, and then recovery puts the job back.
func (q *redisClient) putBack(ctx context.Context, a *attempt, why *putBackError, back *asynqdb.PutBack) error {
	if q.db.PutBack(ctx, a.Queue, back); back.Err != nil {
		return back.Err
	}
	q.inFlight.written(a)
	if why.atOnce() && q.promotes.Load() {
		_, _ = q.db.Promote(ctx, a.Queue, a.ID)
	}
	return nil
}

// requeue gives a job back whose handler still runs when the server stops. Its message says since
// when it has been in its lane, so that it does not wait behind all jobs that came later. It
// returns nil for a job that was in no lane: then asynq's own script does it.
func (q *redisClient) requeue(ctx context.Context, w *writeBack) *redis.Cmd {
	if w.end.queuedAt.IsZero() {
		return nil
	}
	a := w.attempt
	msg := queuePosition{queuedAt: w.end.queuedAt, retryAt: time.Now()}.writeTo(a.job, []byte(a.msg))
	return reply(ctx, q.db.GiveBack(ctx, asynqdb.DequeueOf(a.Queue, a.lease), asynqdb.Taken{ID: a.ID, Msg: string(msg), Back: true}))
}

// crashed writes a job back whose worker died, as asynq's recoverer found, which comes late: see
// recovery. The first crashes are forgiven: the job runs again and no attempt is spent, even if it
// was the last. After that crashed returns nil, and asynq's own script counts the crash as a
// failure, so that a job that kills its workers ends in the archive.
//
// The count is in a field of the job's hash. It is never reset: it counts all crashes, not those in
// a row.
func (q *redisClient) crashed(ctx context.Context, w *writeBack) *redis.Cmd {
	msg := w.Msg
	if w.Failed {
		msg = asynqdb.WithRetried(msg, w.message.Retried-1)
	}
	forgiven, err := q.db.Forgive(ctx, w.Queue, w.ID, msg, w.message.Unique, q.forgiven, w.lease)
	if forgiven || err != nil {
		return reply(ctx, err)
	}
	if w.Script == asynqdb.ScriptArchive { // say more than asynq does
		reason := fmt.Sprintf("its worker died while it ran, again: %d times that was forgiven, after that it counts as a failure", q.forgiven)
		w.SetMsg(asynqdb.WithLastError(w.Msg, reason))
	}
	return nil
}

// noteAttempt stores for people how an attempt ended that asynq has just written: one that failed,
// and one that succeeded after that if the job is kept. A job that succeeds at once costs nothing
// here. An error of Redis is ignored.
func (q *redisClient) noteAttempt(ctx context.Context, w *writeBack) {
	end := asynqdb.Attempt{At: time.Now(), Worker: asynqdb.ProcessName(), Took: w.end.took}
	if w.failed() {
		end.Error = w.message.LastError
		if w.crashed() {
			end.Worker = "" // another's
		}
	}
	if w.end.keep || end.Error != "" {
		_ = q.db.NoteAttempt(ctx, w.Queue, w.ID, end)
	}
}
