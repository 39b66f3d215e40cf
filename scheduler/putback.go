package scheduler

import (
	"errors"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/duration"
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
func (d retryAfter) Error() string { return "retry after " + duration.Text(time.Duration(d)) }

// Blocked returns an error with which a handler says that the other side refused
// its call for now, as with 429 Too Many Requests: until a moment, by this
// process's clock, or, with the zero Time or a moment that is over, until it does not
// say when.
//
// The keys of the rule's Blocks are shut for every worker until then, or for a
// time that grows with each refusal in a row, half of it left to chance. The job
// goes back to the head of its lane, behind those that were allowed before it and
// came back, too; no attempt is spent, and no ErrorHandler hears of it. So at most
// the calls that are underway are refused. The permits that it took stay used.
//
// It may be wrapped; the text of the whole is what asynq shows for the job. A job
// without permits, or under a rule that blocks nothing that it needs, has nothing to
// shut: it is put back as with RetryAfter, or fails where no time is given.
func RateLimited(until time.Time) error { return &rateLimitedError{until} }

// blockedError is the error of [Blocked]. A zero until is a time that is not known.
type rateLimitedError struct{ until time.Time }

// Error is what asynq shows for the job while it is put back.
func (e *rateLimitedError) Error() string {
	if e.until.IsZero() {
		return "blocked by the upstream"
	}
	return "blocked by the upstream until " + e.until.UTC().Format(time.RFC3339)
}

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
	_, blocked := errors.AsType[*rateLimitedError](err)
	_, as := errors.AsType[*putBackAs](err)
	return blocked || as || later && !ends(err)
}

// ends reports whether asynq does not try a job again after an error.
func ends(err error) bool {
	return errors.Is(err, asynq.SkipRetry) || errors.Is(err, asynq.RevokeTask)
}

// putBackError has asynq keep a job for later, without a failure. Its text is the
// wrapped error's: asynq shows it, and endsWith knows the attempt's end by it.
type putBackError struct {
	error
	at       time.Time     // when asynq itself brings it back
	as       *putBackAs    // nil keeps the payload
	denied   bool          // whether it waits for permits, and so may be promoted before
	position queuePosition // where it stood, if it is to stand there again
}

// atOnce reports whether the job is to come back without a wait.
func (e *putBackError) atOnce() bool { return !e.denied && !e.at.After(time.Now()) }

// Error is the wrapped error's text as asynq stores it.
func (e *putBackError) Error() string { return storable(e.error.Error()) }

// Unwrap lets errors.As find what the handler returned.
func (e *putBackError) Unwrap() error { return e.error }

// endsWith reports whether an attempt puts its job back that ended with an error of that text. With
// another one the job failed after all, such as by its timeout: asynq does not wait for the
// handler then, which may say something else later.
func (a flight) endsWith(text string) bool { return a.putBack != nil && a.putBack.Error() == text }
