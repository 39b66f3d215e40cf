package scheduler

import (
	"context"
	"fmt"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/asynqdb"
)

// writeBack is one of asynq's calls that write a job after an attempt.
type writeBack struct {
	*asynqdb.Call
	job
	flight  flight
	message asynqdb.Message // the call's, which the call's Msg has in encoded form
}

// newWriteBack reads a call that writes a job, and gives the job its own timeout and deadline
// back. It reports false for any other call, and for a message that cannot be read.
func (q *redisClient) newWriteBack(c *asynqdb.Call, a flight) (*writeBack, bool) {
	if c.Msg == nil {
		return nil, false
	}
	m, err := asynqdb.ParseMessage(c.Msg)
	if err != nil {
		return nil, false
	}
	c.SetMsg(restoreTimeout(c.Msg, m))
	return &writeBack{c, job{Queue: c.Queue, ID: c.ID}, a, m}, true
}

// failed reports whether asynq writes that the attempt has failed.
func (w *writeBack) failed() bool {
	return w.Script == asynqdb.ScriptRetry || w.Script == asynqdb.ScriptArchive
}

// instead does what is to be done in place of asynq's call, and returns nil if asynq is to write
// the job itself: if the job is done, or has failed. The error's text in the message is all that
// says here why the attempt ended. The message of a failed job is told where the job stood. The
// lease is the one that asynq means; instead sets it for a job whose worker died.
func (q *redisClient) instead(ctx context.Context, w *writeBack, lease *asynqdb.LeaseID) *redis.Cmd {
	if !w.failed() {
		return nil
	}
	if a := q.inFlight.take(w.job); a != nil { // its handler was never called
		go q.prefetcher.jobs.releaseUnused(a)
	}
	if w.flight.endsWith(w.message.LastError) {
		back := q.returning(w.job, w.flight.putBack, w.Msg, w.message.Unique)
		back.Lease = *lease
		return reply(ctx, q.putBack(ctx, w.job, w.flight, back))
	}
	if w.crashed() { // asynq's recoverer has found it
		lease.Ended = time.Now().Add(-recovererWaits).Unix()
		return q.crashed(ctx, w, *lease)
	}
	w.SetMsg(queuePosition{queuedAt: w.flight.since, retryAt: w.At}.writeTo(w.job, w.Msg))
	return nil
}

// crashed reports whether asynq writes that the job's worker died.
func (w *writeBack) crashed() bool { return w.message.LastError == asynq.ErrLeaseExpired.Error() }

// reply is what asynq hears in place of its own script's answer.
func reply(ctx context.Context, err error) *redis.Cmd {
	cmd := redis.NewCmd(ctx)
	cmd.SetVal("OK")
	cmd.SetErr(err)
	return cmd
}

// returning is how a job is put back.
func (q *redisClient) returning(j job, why *putBackError, msg []byte, unique bool) *asynqdb.PutBack {
	back := &asynqdb.PutBack{ID: j.ID, Msg: msg, At: why.at, Unique: unique}
	if why.denied || why.atOnce() && q.promotes.Load() {
		back.Scope = q.scope
	}
	if why.as != nil {
		back.Msg = asynqdb.WithPayload(msg, why.as.payload)
	}
	back.Msg = why.position.writeTo(j, back.Msg)
	return back
}

// putBack writes a job back that waits for permits, or for a moment of its
// handler's choice. One that is to come at once is moved on as if it had been
// called; whatever comes between, it is due for asynq's next poll.
//
// The error is the one that asynq expects of its own script, ErrNotActive included:
// then asynq's recoverer or an operator has the job.
// Where Redis does not answer, asynq repeats the call until the job's lease ends, and
// then recovery does it, which says of which lease: so the job is forgotten here only
// when it was written.
func (q *redisClient) putBack(ctx context.Context, j job, a flight, back *asynqdb.PutBack) error {
	if q.db.PutBack(ctx, j.Queue, back); back.Err != nil {
		return back.Err
	}
	q.inFlight.written(j, a.lease)
	if a.putBack.atOnce() && q.promotes.Load() {
		_, _ = q.db.Promote(ctx, j.Queue, j.ID)
	}
	return nil
}

// requeue gives a job back whose handler still runs when the server stops. Its message says since
// when it stood in its lane, as that of a failed job does, so that it does not wait behind all that
// came later. It returns nil for a job that stood in no lane: then asynq's own script does it.
func (q *redisClient) requeue(ctx context.Context, j job, a flight) *redis.Cmd {
	if a.since.IsZero() {
		return nil
	}
	msg := queuePosition{queuedAt: a.since, retryAt: time.Now()}.writeTo(j, []byte(a.msg))
	back := asynqdb.Taken{ID: j.ID, Msg: string(msg), Back: true}
	return reply(ctx, q.db.GiveBack(ctx, asynqdb.DequeueOf(j.Queue, a.lease), back))
}

// recovererWaits is how long ago the leases had ended, at least, of the jobs that asynq's
// recoverer brings back.
const recovererWaits = 30 * time.Second

// forgivenCrashes is how often a job's worker may die before that counts. Deploys
// and machines that go away kill workers through no fault of the job's; a job that
// takes its worker with it does so each time.
const forgivenCrashes = 3

// crashed writes a job back whose worker died, as asynq's recoverer found, which
// comes late: see recovery. The first crashes are forgiven: the job runs again and no attempt is spent, also
// where it was the last. After that asynq's own script runs, for which a crash
// is a failure, so that a job that kills its workers ends in the archive: crashed
// returns nil then.
//
// The count is in a field of the job's hash and goes with it. It is never set back:
// what counts is the crashes in all, not those in a row.
func (q *redisClient) crashed(ctx context.Context, w *writeBack, lease asynqdb.LeaseID) *redis.Cmd {
	msg := w.Msg
	if w.Failed {
		msg = asynqdb.WithRetried(msg, w.message.Retried-1)
	}
	forgiven, err := q.db.Forgive(ctx, w.job.Queue, w.job.ID, msg, w.message.Unique, q.forgiven, lease)
	if forgiven || err != nil {
		return reply(ctx, err)
	}
	if w.Script == asynqdb.ScriptArchive { // say more than asynq does
		reason := fmt.Sprintf("its worker died while it ran, again: %d times that was forgiven, after that it counts as a failure", q.forgiven)
		w.SetMsg(asynqdb.WithLastError(w.Msg, reason))
	}
	return nil
}

// noteEnd notes for people how an attempt has ended that asynq has just written: one that
// failed, and one that succeeded after that if the job is kept. A job that succeeds at once
// costs nothing here. What Redis does not take is not noted.
func (q *redisClient) noteEnd(ctx context.Context, w *writeBack) {
	end := asynqdb.Attempt{At: time.Now(), Worker: asynqdb.Here(), Took: w.flight.took}
	if w.failed() {
		end.Error = w.message.LastError
		if w.crashed() {
			end.Worker = "" // another's
		}
	}
	if w.flight.noted || end.Error != "" {
		_ = q.db.NoteAttempt(ctx, w.job.Queue, w.job.ID, end)
	}
}
