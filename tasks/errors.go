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
)

// The classes of errors that Class returns. They are texts, because config files name them.
const (
	ClassExit    = "exit"    // of a command; "exit:3" is that code alone
	ClassKilled  = "killed"  // a command that a signal or its timeout ended
	ClassNetwork = "network" // no answer, a broken one, or none in time
	Class3xx     = "3xx"     // an unexpected status, like the next two
	Class4xx     = "4xx"
	Class5xx     = "5xx"
)

// Class returns the class of a built-in task's error, for retry policies: ClassNetwork, Class3xx
// and so on for an unexpected status, ClassKilled, or ClassExit with a colon and the exit code. It is
// empty for any other error and for nil. Errors that archive a job have a class, too.
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
	Command string // its name in ExecHandler.Commands
	// Code is its exit code, or -1 if it has none.
	Code int
	// Reason is "exit code 3", "signal: killed", a timeout or the like.
	Reason string
	// Stderr is the end of its error output, up to 1,000 bytes.
	Stderr string
}

// Error names the command, the reason and the end of its error output.
func (e *CommandError) Error() string {
	text := fmt.Sprintf("command %s: %s", e.Command, e.Reason)
	if e.Stderr != "" {
		text += ": " + e.Stderr
	}
	return text
}

// NetworkError is the error of a call without a complete answer. The upstream may have done what
// the call asked for. The job is retried.
type NetworkError struct {
	// URL is the called URL, as the payload has it.
	URL string
	// Status is the status of an answer whose body broke off, and 0 without an answer.
	Status int
	// Err is the cause, without secrets in its text. It wraps context.DeadlineExceeded if the
	// call timed out.
	Err error
}

// Error names the URL and the cause.
func (e *NetworkError) Error() string {
	if e.Status > 0 {
		return fmt.Sprintf("%s answered %s, but its body broke off: %s", e.URL, statusText(e.Status), e.Err)
	}
	return fmt.Sprintf("%s did not answer: %s", e.URL, e.Err)
}

// Unwrap returns the cause.
func (e *NetworkError) Unwrap() error { return e.Err }

// BodyError is the error of a body that is longer than the call allows. It comes wrapped with
// asynq.SkipRetry: the same call would give the same body.
type BodyError struct {
	URL    string // that answered
	Max    int64  // how many bytes the call allows
	Length int64  // how many bytes the body has, -1 if that is not known
}

// Error names the URL, the length and the maximum.
func (e *BodyError) Error() string {
	if e.Length < 0 {
		return fmt.Sprintf("the body of %s has more than %d bytes, the most that may be kept", e.URL, e.Max)
	}
	return fmt.Sprintf("the body of %s has %d bytes: at most %d may be kept", e.URL, e.Length, e.Max)
}

// maxErrorText is the maximum length of an error, which asynq writes to Redis.
const maxErrorText = 2000

// presentable returns the error with a text that can be stored and shown: short, without the
// secrets in a URL, and UTF-8, because asynq cannot write another text to Redis. errors.Is and
// errors.As see the error as before.
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

// StatusError is the error of an HTTP call with an unexpected status. It comes wrapped with
// asynq.SkipRetry if the same call would get the same answer: see HTTPHandler.
type StatusError struct {
	Status int
	// Expect lists the expected statuses; none means any 2xx.
	Expect []int
	// RetryAfter is how long the upstream asked to wait, by Retry-After or an exhausted
	// quota, at most a year. It is 0 if the upstream did not ask.
	RetryAfter time.Duration
	// Until is until when the upstream wants no calls at all, by this process's clock: see
	// Upstream.Until. It is zero if RetryAfter applies to this call alone.
	Until time.Time
	// URL is the one that answered, after redirects and without secrets.
	URL string
	// Redirect says why a redirect was not followed, and where it leads. Nil means that the
	// answer was no redirect.
	Redirect error
}

// Error names the URL, the status, the expected statuses, the target of a redirect, and how long
// the upstream asked to wait.
func (e *StatusError) Error() string {
	want := "any 2xx"
	if len(e.Expect) > 0 {
		want = strings.Trim(strings.ReplaceAll(fmt.Sprint(e.Expect), " ", " or "), "[]")
	}
	text := fmt.Sprintf("%s answered %s, want %s", e.URL, statusText(e.Status), want)
	if e.Redirect != nil {
		text += "; " + e.Redirect.Error()
	}
	if e.RetryAfter > 0 {
		text += fmt.Sprintf(", and asked to wait %s", duration.Text(e.RetryAfter))
	}
	return text
}

// statusText returns a status with its name, such as "404 Not Found".
func statusText(status int) string {
	return strings.TrimSpace(fmt.Sprintf("%d %s", status, http.StatusText(status)))
}

// permanent reports whether the same call would get the same answer: for a redirect that was not
// followed, and for any 4xx except:
//
//   - 408, 425 and 429, which are temporary;
//   - one with a Retry-After;
//   - a 403 with an exhausted quota, which is GitHub's 429. With another status an exhausted
//     quota does not matter: it does not cause a 404.
func (e *StatusError) permanent(h http.Header) bool {
	switch {
	case e.Redirect != nil:
		return true
	case e.Status < 400 || e.Status >= 500:
		return false
	}
	switch e.Status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return false
	case http.StatusForbidden:
		return e.RetryAfter == 0
	}
	return headerTimes{h, time.Now()}.retryAfter() == 0
}

// ends returns the error for the handler to return, which archives the job if it is permanent.
func (e *StatusError) ends(h http.Header) error {
	if e.permanent(h) {
		return fmt.Errorf("%w: %w", e, asynq.SkipRetry)
	}
	return e
}

// checkStatus returns a StatusError unless the status is expected, or a 2xx if expect is empty. Its
// RetryAfter counts from at, when the header arrived.
func checkStatus(a Response, expect []int, at time.Time) *StatusError {
	ok := a.Status >= 200 && a.Status < 300
	if len(expect) > 0 {
		ok = slices.Contains(expect, a.Status)
	}
	if ok {
		return nil
	}
	wrong := &StatusError{Status: a.Status, Expect: expect, URL: a.URL, RetryAfter: a.Upstream.RetryAfter}
	if until := a.Upstream.Until; !until.IsZero() {
		wrong.RetryAfter, wrong.Until = until.Sub(at), until
	}
	return wrong
}
