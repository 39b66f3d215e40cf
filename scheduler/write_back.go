package scheduler

import (
	"context"
	"fmt"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/asynqdb"
)

// instead returns nil for what asynq is to do itself: all that is not a write-back,
// and failures. The message that asynq writes has the error's text in it, which is
// all that says here why the attempt ended. It is told where the job stood. The lease is the
// one that asynq means; of a job whose worker died it is set here.
func (q *queueRedis) instead(ctx context.Context, c *asynqdb.Call, lease *asynqdb.LeaseID) *redis.Cmd {
	if c.Script != asynqdb.ScriptRetry && c.Script != asynqdb.ScriptArchive {
		return nil
	}
	j := job{Queue: c.Queue, ID: c.ID}
	if a := q.askings.take(j); a != nil { // its handler was never called
		go q.ahead.jobs.waste(a)
	}
	m, err := asynqdb.ParseMessage(c.Msg)
	if err != nil {
		return nil
	}
	if why, ok := q.putBacks.find(j, m.LastError); ok {
		back := q.returning(j, why, c.Msg, m.Unique)
		back.Lease = *lease
		return reply(ctx, q.putBack(ctx, j, why, back))
	}
	if m.LastError == asynq.ErrLeaseExpired.Error() { // asynq's recoverer has found it
		lease.Ended = time.Now().Add(-recovererWaits).Unix()
		return q.crashed(ctx, c, m, *lease)
	}
	ran, _ := q.runs.get(j)
	c.SetMsg(stood{since: ran.since, again: c.At}.in(j, c.Msg))
	return nil
}

// reply is what asynq hears in place of its own script's answer.
func reply(ctx context.Context, err error) *redis.Cmd {
	cmd := redis.NewCmd(ctx)
	cmd.SetVal("OK")
	cmd.SetErr(err)
	return cmd
}

// returning is how a job is put back.
func (q *queueRedis) returning(j job, why *putBackError, msg []byte, unique bool) *asynqdb.PutBack {
	back := &asynqdb.PutBack{ID: j.ID, Msg: msg, At: why.at, Unique: unique}
	if why.denied || why.atOnce() && q.promotes.Load() {
		back.Scope = q.scope
	}
	if why.as != nil {
		back.Msg = asynqdb.WithPayload(msg, why.as.payload)
	}
	back.Msg = why.stood.in(j, back.Msg)
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
func (q *queueRedis) putBack(ctx context.Context, j job, why *putBackError, back *asynqdb.PutBack) error {
	if q.db.PutBack(ctx, j.Queue, back); back.Err != nil {
		return back.Err
	}
	q.putBacks.remove(j)
	if why.atOnce() && q.promotes.Load() {
		_, _ = q.db.Promote(ctx, j.Queue, j.ID)
	}
	return nil
}

// requeue gives a job back whose handler still runs when the server stops. Its message says since
// when it stood in its lane, as that of a failed job does, so that it does not wait behind all that
// came later. It returns nil for a job that stood in no lane: then asynq's own script does it.
func (q *queueRedis) requeue(ctx context.Context, j job) *redis.Cmd {
	as := q.ahead.hands.of(j)
	if as.since.IsZero() {
		return nil
	}
	msg := stood{since: as.since, again: time.Now()}.in(j, []byte(as.msg))
	back := asynqdb.Taken{ID: j.ID, Msg: string(msg), Back: true}
	return reply(ctx, q.db.GiveBack(ctx, asynqdb.DequeueOf(j.Queue, as.lease), back))
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
func (q *queueRedis) crashed(ctx context.Context, c *asynqdb.Call, m asynqdb.Message, lease asynqdb.LeaseID) *redis.Cmd {
	msg := c.Msg
	if c.Failed {
		msg = asynqdb.WithRetried(msg, m.Retried-1)
	}
	forgiven, err := q.db.Forgive(ctx, c.Queue, c.ID, msg, m.Unique, q.forgiven, lease)
	if forgiven || err != nil {
		return reply(ctx, err)
	}
	if c.Script == asynqdb.ScriptArchive { // say more than asynq does
		reason := fmt.Sprintf("its worker died while it ran, again: %d times that was forgiven, after that it counts as a failure", q.forgiven)
		c.SetMsg(asynqdb.WithLastError(c.Msg, reason))
	}
	return nil
}

// handled is what this process knows of an attempt that has ended.
type handled struct {
	took  time.Duration
	since time.Time // when its job came to its lane first, unless it is done
}

// ended notes for people how an attempt has ended that asynq has just written: one that
// failed, and one that succeeded after that where the job is kept. A job that succeeds at once
// costs nothing here. What Redis does not take is not noted.
func (q *queueRedis) ended(ctx context.Context, c asynqdb.Call) {
	end := asynqdb.Attempt{At: time.Now(), Worker: asynqdb.Here()}
	switch c.Script {
	case asynqdb.ScriptRetry, asynqdb.ScriptArchive:
		m, err := asynqdb.ParseMessage(c.Msg)
		if err != nil {
			return
		}
		end.Error = m.LastError
		if m.LastError == asynq.ErrLeaseExpired.Error() {
			end.Worker = "" // another's
		}
	case asynqdb.ScriptComplete:
	default:
		return
	}
	j := job{Queue: c.Queue, ID: c.ID}
	ran, ok := q.runs.get(j)
	if !ok && end.Error == "" {
		return
	}
	q.runs.remove(j)
	end.Took = ran.took
	_ = q.db.NoteAttempt(ctx, c.Queue, c.ID, end)
}
