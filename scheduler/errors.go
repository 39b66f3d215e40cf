package scheduler

import (
	"errors"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/duration"
	"github.com/headgate/headgate/throttle"
)

// RetryAfter returns an error with which a handler puts its job back for at least d: no attempt is
// spent, and no ErrorHandler is called. It is for a handler that finds out by itself that it has come
// too early:
//
//	if resp.StatusCode == http.StatusServiceUnavailable {
//		return scheduler.RetryAfter(time.Minute)
//	}
//
// It may be wrapped; asynq shows the whole text for the job. If d is zero, the job comes again at once.
// Otherwise it comes with asynq's own polls, up to a second and a DelayedTaskCheckInterval after d. Its
// permits are used up; when it comes it asks for them again, at its rule's RetryPosition.
func RetryAfter(d time.Duration) error { return retryAfter(d) }

type retryAfter time.Duration

// Error is what asynq shows for the job while it is put back.
func (d retryAfter) Error() string { return "retry after " + duration.Text(time.Duration(d)) }

// RateLimited returns an error with which a handler says that the upstream rejected its call for now,
// as with 429 Too Many Requests: until a time by this process's clock, or for an unknown time if until
// is zero or has passed.
//
// The keys of the rule's BlockOnRateLimit are blocked for all workers until then, or for a time that
// grows with each rejection in a row, half of it random. The job goes back to the head of its lane,
// behind jobs that were allowed before it and also came back; no attempt is spent, and no ErrorHandler
// is called. So at most the calls that are under way are rejected. The permits stay used.
//
// It may be wrapped; asynq shows the whole text for the job. If the job has no permits, or its rule
// blocks nothing that it needs, the job is put back as with RetryAfter, or fails if no time is given.
func RateLimited(until time.Time) error { return &rateLimitedError{until} }

type rateLimitedError struct{ until time.Time }

// Error is what asynq shows for the job while it is put back.
func (e *rateLimitedError) Error() string {
	if e.until.IsZero() {
		return "blocked by the upstream"
	}
	return "blocked by the upstream until " + e.until.UTC().Format(time.RFC3339)
}

// PutBackAs returns an error with which a handler puts its job back with another payload. The job goes
// on as if it had been enqueued with that payload, under the permits that it needs then, with its ID,
// its queue and its options. No attempt is spent. It may be wrapped, and comes back as after
// RetryAfter(0).
func PutBackAs(payload []byte) error { return &putBackAs{payload} }

type putBackAs struct{ payload []byte }

// Error is what asynq shows for the job while it is put back.
func (*putBackAs) Error() string { return "put back with another payload" }

// IsPutBack reports whether a handler's error puts its job back, by RetryAfter, RateLimited or
// PutBackAs, which is no failure. It is for middleware that logs or counts failures. If an error is
// several things, RateLimited and PutBackAs count before asynq.SkipRetry and asynq.RevokeTask, and
// RetryAfter after them. A RateLimited without a time fails a job without permits all the same.
func IsPutBack(err error) bool {
	_, later := errors.AsType[retryAfter](err)
	_, limited := errors.AsType[*rateLimitedError](err)
	_, as := errors.AsType[*putBackAs](err)
	return limited || as || later && !ends(err)
}

// ends reports whether asynq does not retry a job after an error.
func ends(err error) bool {
	return errors.Is(err, asynq.SkipRetry) || errors.Is(err, asynq.RevokeTask)
}

// ImpossibleError says why a job was archived or dropped without running: it can never have its
// permits, not in the time that it has, or its limit does not exist. Its text names the limit and what
// would be right; asynq shows it as the job's last error. A job that was put back by [RateLimited] can
// end with it, too. errors.Is finds asynq.SkipRetry in it, or asynq.RevokeTask if the job is dropped.
type ImpossibleError struct {
	Decision throttle.Decision
	action   error
}

// Error describes the decision.
func (e *ImpossibleError) Error() string { return e.Decision.String() }

// Unwrap makes asynq archive or delete the job at once.
func (e *ImpossibleError) Unwrap() error { return e.action }

// putBackError makes asynq keep a job for later, without a failure. Its text is the wrapped error's:
// asynq shows it, and the write of the attempt's end is recognized by it.
type putBackError struct {
	error
	at       time.Time     // when asynq itself brings the job back
	as       *putBackAs    // nil keeps the payload
	denied   bool          // whether the job waits for permits, and so may be promoted before
	position queuePosition // the position that the job keeps, if any
}

// atOnce reports whether the job comes back without a wait.
func (e *putBackError) atOnce() bool { return !e.denied && !e.at.After(time.Now()) }

// Error is the wrapped error's text as asynq stores it.
func (e *putBackError) Error() string { return storable(e.error.Error()) }

// Unwrap lets errors.As find what the handler returned.
func (e *putBackError) Unwrap() error { return e.error }

// finalError is an error after which asynq does not retry. It has the text of the error within,
// without the text that asynq.SkipRetry would add.
type finalError struct{ error }

// Unwrap lets errors.Is and errors.As see the handler's own error.
func (e finalError) Unwrap() error { return e.error }

// Is reports that asynq does not retry.
func (e finalError) Is(target error) bool { return target == asynq.SkipRetry }

// spacedError is a handler's own error with the delay that its rule sets before the next attempt.
type spacedError struct {
	error
	delay time.Duration
}

// Unwrap lets errors.Is and errors.As see the handler's own error.
func (e spacedError) Unwrap() error { return e.error }

// cause returns the error of the program's own handler, without the delay of its rule. A finalError
// stays, because it tells an ErrorHandler, as asynq.SkipRetry does, that the job is archived.
func cause(err error) error {
	if spaced, ok := errors.AsType[spacedError](err); ok {
		return spaced.error
	}
	return err
}

// storable returns a text as asynq can store it: in a protobuf string, which must be UTF-8. With any
// other text asynq can end no attempt, and the job stays active.
func storable(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }

// storableError is an error whose own text cannot be stored.
type storableError struct{ error }

// Error is the text without what is not UTF-8.
func (e storableError) Error() string { return storable(e.error.Error()) }

// Unwrap lets errors.Is and errors.As see the error itself.
func (e storableError) Unwrap() error { return e.error }

// withStorableText returns err, or one like it if its text cannot be stored.
func withStorableText(err error) error {
	if err == nil || utf8.ValidString(err.Error()) {
		return err
	}
	return storableError{err}
}

// mendPanic makes the text of the error storable that asynq itself makes of a panic. It cannot be
// replaced: a panic that was recovered here would have lost its line.
func mendPanic(err error) {
	if !asynq.IsPanicError(err) || utf8.ValidString(err.Error()) {
		return
	}
	if e := reflect.Indirect(reflect.ValueOf(err)); e.Kind() == reflect.Struct {
		if text := e.FieldByName("ErrMsg"); text.CanSet() && text.Kind() == reflect.String {
			text.SetString(storable(text.String()))
		}
	}
}
