package scheduler

import (
	"context"
	"errors"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/throttle"
)

// RetryAfter returns an error with which a handler puts its job back for at
// least d: no attempt is spent, and no ErrorHandler hears of it. It is for a handler
// that finds out by itself that it has come too early:
//
//	if resp.StatusCode == http.StatusServiceUnavailable {
//		return scheduler.RetryAfter(time.Minute)
//	}
//
// It may be wrapped; the text of the whole is what asynq shows for the job. With a
// d of zero it comes at once. Else nothing calls the job back before: it comes with
// asynq's own polls, which take whole seconds, so up to a second and a
// DelayedTaskCheckInterval later. Its permits are used up. When it comes it asks for
// them again, where its rule's RetryAt says.
func RetryAfter(d time.Duration) error { return retryAfter(d) }

// retryAfter is the error of [RetryAfter].
type retryAfter time.Duration

// Error is what asynq shows for the job while it is put back.
func (d retryAfter) Error() string { return "retry after " + time.Duration(d).String() }

// PutBackAs returns an error with which a handler puts its job back with another
// payload: the job goes on as if it had been enqueued with that, under the
// permits that it needs then, with its ID, its queue and its options. No attempt
// is spent. It may be wrapped, and comes back as after RetryAfter(0).
func PutBackAs(payload []byte) error { return &putBackAs{payload} }

// putBackAs is the error of [PutBackAs].
type putBackAs struct{ payload []byte }

// Error is what asynq shows for the job while it is put back.
func (*putBackAs) Error() string { return "put back with another payload" }

// IsPutBack reports whether a handler's error puts its job back, by RetryAfter,
// Blocked or PutBackAs, which is no failure. It is for middleware that logs or
// counts failures. Of an error that is several things Blocked and PutBackAs count
// before asynq.SkipRetry and asynq.RevokeTask, and RetryAfter after them. Of Blocked
// it is what the handler wants: without permits and without a time the job fails all
// the same.
func IsPutBack(err error) bool {
	_, later := errors.AsType[retryAfter](err)
	_, blocked := errors.AsType[*blockedError](err)
	_, as := errors.AsType[*putBackAs](err)
	return blocked || as || later && !ends(err)
}

// ends reports whether asynq does not try a job again after an error.
func ends(err error) bool {
	return errors.Is(err, asynq.SkipRetry) || errors.Is(err, asynq.RevokeTask)
}

// putBackError has asynq keep a job for later, without a failure. Its text is the
// wrapped error's: asynq shows it, and putBacks.find knows the job again by it.
type putBackError struct {
	error
	at     time.Time  // when asynq itself brings it back
	as     *putBackAs // nil keeps the payload
	denied bool       // whether it waits for permits, and so may be promoted before
	since  time.Time  // when it came to its lane first, where it is to stand there again
}

// atOnce reports whether the job is to come back without a wait.
func (e *putBackError) atOnce() bool { return !e.denied && !e.at.After(time.Now()) }

// Error is the wrapped error's text as asynq stores it.
func (e *putBackError) Error() string { return storable(e.error.Error()) }

// Unwrap lets errors.As find what the handler returned.
func (e *putBackError) Unwrap() error { return e.error }

// job names a job in asynq: an ID is unique in its queue only.
type job = throttle.JobID

// putBacks are the jobs of this process that asynq is about to write back to
// Redis. asynq archives a job on its last attempt whatever kind of error it
// gets; so the client between asynq and Redis looks here for what is meant.
//
// A job is added when its handler has returned, and removed when it is written
// back.
type putBacks struct{ remembered[*putBackError] }

// find returns what is to become of a job whose attempt ended with an error of
// that text. With another one it failed after all, such as by its timeout: asynq
// does not wait for the handler then, which may say something else later.
func (p *putBacks) find(j job, text string) (*putBackError, bool) {
	err, ok := p.get(j)
	return err, ok && err.Error() == text
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
	back.Msg = stood{why.since, why.at}.in(back.Msg)
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
