package tasks

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/duration"
	"github.com/headgate/headgate/internal/redact"
	"github.com/headgate/headgate/scheduler"
)

// The classes of errors that config files can name. A config file can also name one exit code, as
// in "exit:3".
const (
	ClassExit    = "exit"    // a command that exited with a code other than 0
	ClassKilled  = "killed"  // a command that a signal or its timeout ended
	ClassNetwork = "network" // no complete response in time
	Class3xx     = "3xx"     // an unexpected status from 300 to 399; Class4xx and Class5xx likewise
	Class4xx     = "4xx"
	Class5xx     = "5xx"
)

// Class returns the class of a built-in task's error, for retry policies: a constant, "exit:" with
// the exit code, or "2xx" for an unexpected 2xx. It returns "" for any other error, and for nil.
func Class(err error) string {
	if command, ok := errors.AsType[*CommandError](err); ok {
		if command.Code < 0 {
			return ClassKilled
		}
		return fmt.Sprintf("%s:%d", ClassExit, command.Code)
	}
	if _, ok := errors.AsType[*NetworkError](err); ok {
		return ClassNetwork
	}
	if status, ok := errors.AsType[*StatusError](err); ok {
		return fmt.Sprintf("%dxx", status.Status/100)
	}
	return ""
}

// CommandError is the error of a command that failed. The job is retried.
type CommandError struct {
	Command string // the name in ExecHandler.Commands
	Code    int    // the exit code, or -1 if the command did not exit by itself
	Reason  string // "exit code 3", "signal: killed", "no end within 1m", or another cause
	Stderr  string // the end of the command's error output, up to 1,000 bytes
}

// Error implements error.
func (e *CommandError) Error() string {
	text := fmt.Sprintf("command %s: %s", e.Command, e.Reason)
	if e.Stderr != "" {
		text += ": " + e.Stderr
	}
	return text
}

// NetworkError is the error of a call without a complete response. The upstream may have executed
// the call. The job is retried.
type NetworkError struct {
	URL    string // with references instead of secrets
	Status int    // status of a response with an incomplete body; 0 if there was no response
	Err    error  // the cause, without secrets; it wraps context.DeadlineExceeded after a timeout
}

// Error implements error.
func (e *NetworkError) Error() string {
	if e.Status > 0 {
		return fmt.Sprintf("%s answered %s, but its body broke off: %s", e.URL, statusText(e.Status), e.Err)
	}
	return fmt.Sprintf("%s did not answer: %s", e.URL, e.Err)
}

// Unwrap returns the cause.
func (e *NetworkError) Unwrap() error { return e.Err }

// maxErrorText is the maximum length in bytes of an error, because asynq writes it to Redis.
const maxErrorText = 2000

// presentable returns err, or an error that wraps err and has a text that asynq can store: short,
// in UTF-8, and without secrets in the queries of URLs. For nil it returns nil.
func presentable(err error) error {
	if err == nil {
		return nil
	}
	text := redact.Query(err.Error())
	if text == err.Error() && len(text) <= maxErrorText && utf8.ValidString(text) {
		return err
	}
	if len(text) > maxErrorText {
		text = text[:maxErrorText] + "…"
	}
	return &hiddenError{strings.ToValidUTF8(text, "\uFFFD"), err}
}

// hiddenError shows text instead of the text of err. text has no secrets, and leaves out errors that
// tell the server what to do with the job, such as scheduler.RetryAfter.
type hiddenError struct {
	text string
	err  error
}

func (e *hiddenError) Error() string { return e.text }

// Unwrap returns the original error, whose text may have secrets: do not log it.
func (e *hiddenError) Unwrap() error { return e.err }

// ErrNotCalled is wrapped by the error of an attempt that made no call, for example because of a
// malformed payload, a missing secret or a refused connection. Once a connection was made, the
// request counts as sent.
var ErrNotCalled = errors.New("no call was made")

// notCalled returns an error with the text of err that wraps err and ErrNotCalled.
func notCalled(err error) error {
	return &hiddenError{err.Error(), errors.Join(err, ErrNotCalled)}
}

// unable returns an error with the text of err which says that this worker cannot run the job because
// of its own config: see scheduler.ErrUnable. It wraps err and ErrNotCalled.
func unable(err error) error {
	return &hiddenError{err.Error(), errors.Join(err, ErrNotCalled, scheduler.ErrUnable)}
}

// malformed returns the error that archives a job because of its payload.
func malformed(err error) error {
	return notCalled(fmt.Errorf("malformed payload: %w: %w", err, asynq.SkipRetry))
}

// StatusError is the error of an HTTP call with an unexpected status. It is wrapped with
// asynq.SkipRetry if the same call would get the same response: see HTTPHandler.
type StatusError struct {
	Status int
	Expect []int // the expected statuses; empty means any 2xx
	// RetryAfter is the wait that the upstream asked for by Retry-After or an exhausted quota, at
	// most a year. 0 means that the upstream asked for no wait.
	RetryAfter time.Duration
	// Until is the time from which the upstream accepts calls again, or the zero Time if the
	// response names none: see ReadUpstream.
	Until time.Time
	URL   string // without secrets
	// Redirect says where a redirect leads, and why the handler does not follow it. Nil means that
	// the response is no redirect, or that the handler follows the redirect.
	Redirect error

	permanent bool      // the same call would get the same response
	received  time.Time // when the response arrived
	verdict   Verdict
}

// newStatusError returns a StatusError for a response that has just arrived, even if its status is
// expected. A 4xx is permanent, except 408, 425, those of a rate limit, a 4xx with a Retry-After,
// and a 403 with an exhausted quota, which GitHub sends instead of a 429.
func newStatusError(resp *http.Response, url string) *StatusError {
	e := &StatusError{Status: resp.StatusCode, URL: url}
	e.readTimes(e.Status, resp.Header)
	e.permanent = e.Status/100 == 4 && e.RetryAfter == 0 && (e.Status != http.StatusForbidden || e.Until.IsZero()) &&
		e.Status != http.StatusRequestTimeout && e.Status != http.StatusTooEarly && !isRateLimit(e.Status)
	return e
}

// Error implements error.
func (e *StatusError) Error() string {
	want := "any 2xx"
	if len(e.Expect) > 0 {
		want = strings.Trim(strings.ReplaceAll(fmt.Sprint(e.Expect), " ", " or "), "[]")
	}
	text := fmt.Sprintf("%s answered %s, want %s", e.URL, statusText(e.Status), want)
	switch e.verdict {
	case VerdictRateLimited:
		text = fmt.Sprintf("%s answered %s, which is a rate limit here", e.URL, statusText(e.Status))
	case VerdictRetry:
		text = fmt.Sprintf("%s answered %s, which is a failure here", e.URL, statusText(e.Status))
	}
	if e.Redirect != nil {
		text += "; " + e.Redirect.Error()
	}
	if e.RetryAfter > 0 {
		text += fmt.Sprintf(", and asked to wait %s", duration.Text(e.RetryAfter))
	}
	return text
}

// EarliestRetry returns the time before which the upstream wants no other attempt: see
// scheduler.EarliestRetrier. It is the zero Time if the upstream asked for no wait.
func (e *StatusError) EarliestRetry() time.Time {
	if e.RetryAfter <= 0 {
		return time.Time{}
	}
	received := e.received
	if received.IsZero() { // not from newStatusError
		received = time.Now()
	}
	return received.Add(e.RetryAfter)
}

// statusText returns a status with its name, such as "404 Not Found".
func statusText(status int) string {
	return strings.TrimSpace(fmt.Sprintf("%d %s", status, http.StatusText(status)))
}

// unexpected returns e if there is a verdict. Otherwise it returns nil if expect contains the status,
// or if expect is empty and the status is a 2xx. The error for any other status archives the job if
// the status is permanent, or if the handler does not follow a redirect.
func (e *StatusError) unexpected(expect []int) error {
	e.Expect = expect
	if e.verdict != VerdictByStatus {
		return e
	}
	if slices.Contains(expect, e.Status) || len(expect) == 0 && e.Status/100 == 2 {
		return nil
	}
	if e.permanent || e.Redirect != nil {
		return fmt.Errorf("%w: %w", e, asynq.SkipRetry)
	}
	return e
}
