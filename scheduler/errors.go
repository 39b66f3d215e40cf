package scheduler

import (
	"errors"
	"strings"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/duration"
	"github.com/headgate/headgate/throttle"
)

// RetryAfter returns an error with which a handler puts its job back for at least d. The job spends
// no attempt, and no ErrorHandler is called. It is for work that cannot be done yet:
//
//	if resp.StatusCode == http.StatusServiceUnavailable {
//		return scheduler.RetryAfter(time.Minute)
//	}
//
// The error may be wrapped; asynq shows its text for the job. If d is zero or negative, the job
// runs again at once. If d is positive, asynq brings the job back after d, at most
// DelayedTaskCheckInterval plus a second late. The permits of the attempt stay used; the next
// attempt requests permits at the RetryPosition of its rule.
func RetryAfter(d time.Duration) error { return retryAfter(d) }

type retryAfter time.Duration

// Error implements error.
func (d retryAfter) Error() string { return "retry after " + duration.Text(time.Duration(d)) }

// RateLimited returns an error with which a handler reports that the upstream rejected its call, as
// with 429 Too Many Requests. The parameter until is the time at which the upstream accepts calls
// again, by this process's clock. A zero or past time means that the upstream did not say.
//
// The keys of the rule's BlockOnRateLimit are blocked for all workers until that time. If until is
// zero or past, the block grows with each rejection in a row, and half of its length is random. The
// job waits in its lane again. It spends no attempt, its permits stay used, and no ErrorHandler is
// called.
//
// After the block another job of the lane is tried first. If that job is served, the upstream has
// rejected the one job and not the host: the job goes to the end of its lane, and its third
// rejection in a row and all later ones are failed attempts. If other jobs are rejected, too, all
// rejected jobs wait at the head of their lane, in the order in which they were allowed.
//
// The error may be wrapped; asynq shows its text for the job. If the job has no permits, or its
// rule blocks nothing that the job needs, the job is put back until that time, as with RetryAfter,
// or fails if until is zero.
func RateLimited(until time.Time) error { return &rateLimitedError{until} }

type rateLimitedError struct{ until time.Time }

// EarliestRetry implements EarliestRetrier, for a job that fails.
func (e *rateLimitedError) EarliestRetry() time.Time { return e.until }

// Error implements error.
func (e *rateLimitedError) Error() string {
	if e.until.IsZero() {
		return "blocked by the upstream"
	}
	return "blocked by the upstream until " + e.until.UTC().Format(time.RFC3339)
}

// PutBackAs returns an error with which a handler puts its job back with another payload. The job
// keeps its ID, its queue and its options, and needs the permits of the new payload. It spends no
// attempt, and runs again at once, as after RetryAfter(0). The error may be wrapped.
func PutBackAs(payload []byte) error { return &putBackAs{payload} }

type putBackAs struct{ payload []byte }

// Error implements error.
func (*putBackAs) Error() string { return "put back with another payload" }

// IsPutBack reports whether a handler's error puts the job back. Such an error is no failure, and
// wraps ErrUnable, or an error from RetryAfter, RateLimited or PutBackAs. Middleware that logs or
// counts failures can call IsPutBack. Only the server knows when a job that wraps ErrUnable fails.
//
// If an error also wraps asynq.SkipRetry or asynq.RevokeTask, RateLimited and PutBackAs still put
// the job back, but RetryAfter does not.
func IsPutBack(err error) bool {
	_, later := errors.AsType[retryAfter](err)
	_, limited := errors.AsType[*rateLimitedError](err)
	_, as := errors.AsType[*putBackAs](err)
	return isUnable(err) || limited || as || later && !forbidsRetry(err)
}

// forbidsRetry reports whether an error keeps asynq from retrying the job.
func forbidsRetry(err error) bool {
	return errors.Is(err, asynq.SkipRetry) || errors.Is(err, asynq.RevokeTask)
}

// ImpossibleError is why a job was archived or dropped. The job can never get its permits, its
// limit does not exist, or its MaxWait or deadline passed while the job waited. asynq shows the
// error's text, with the limit, as the job's last error. The error wraps asynq.SkipRetry, or
// asynq.RevokeTask if the job was dropped.
type ImpossibleError struct {
	Decision throttle.Decision
	action   error
}

// Error describes the decision.
func (e *ImpossibleError) Error() string { return e.Decision.String() }

// Unwrap makes asynq archive or delete the job at once.
func (e *ImpossibleError) Unwrap() error { return e.action }

// putBackError makes asynq put a job back without a failure. redisClient.replace recognizes asynq's
// call by the error's text, and puts the job back in place of the call.
type putBackError struct {
	error
	at         time.Time     // when asynq's poll brings the job back
	newPayload *putBackAs    // nil keeps the old payload
	told       bool          // whether the upstream said the time at: the jobs that come back then are spread
	denied     bool          // whether the job waits for permits, and may be promoted before the time at
	position   queuePosition // the position that the job keeps; zero for none
	// unableSince is the time since which no worker could run the job, or the zero Time.
	unableSince time.Time
}

// Error returns the wrapped error's text as asynq stores it.
func (e *putBackError) Error() string { return storable(e.error.Error()) }

// Unwrap returns the wrapped error.
func (e *putBackError) Unwrap() error { return e.error }

// attemptError says whether and when asynq retries the job. It does not wrap asynq.SkipRetry,
// because that would change its text.
type attemptError struct {
	error
	final bool           // whether asynq archives the job without a retry
	delay *time.Duration // the delay before a retry; nil leaves it to the program's RetryDelayFunc
}

// Error returns the wrapped error's text as asynq stores it.
func (e *attemptError) Error() string { return storable(e.error.Error()) }

// Unwrap returns the wrapped error.
func (e *attemptError) Unwrap() error { return e.error }

// Is makes a final error match asynq.SkipRetry, so that asynq does not retry the job.
func (e *attemptError) Is(target error) bool { return e.final && target == asynq.SkipRetry }

// storable replaces what is not UTF-8 in a text, because asynq stores the text in a protobuf
// string.
func storable(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }
