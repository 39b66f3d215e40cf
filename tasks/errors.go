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

// The classes of errors, as Class tells them. They are texts and not types, since
// rules in a config file name them.
const (
	ClassExit    = "exit"    // of a command; "exit:3" is that code alone
	ClassKilled  = "killed"  // a command that a signal ended, or its time
	ClassNetwork = "network" // no answer, or one that broke off, or none in time
	Class3xx     = "3xx"     // by the status that was not expected, like the next two
	Class4xx     = "4xx"
	Class5xx     = "5xx"
)

// Class is the class of a built-in task's error, for a policy of retries by
// class: ClassNetwork, the hundreds of the status that was not expected,
// ClassKilled, or ClassExit with a colon and the exit code. It is empty for every
// other error, and for none. Errors that archive a job at once have a class, too.
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

// CommandError is a command that did not end well. It is retried.
type CommandError struct {
	Command string // its name in ExecHandler.Commands
	// Code is its exit code: -1 where it had none.
	Code int
	// Reason is why: "exit code 3", "signal: killed", or a timeout.
	Reason string
	// Stderr is the end of what it printed there, up to 1,000 bytes before secrets
	// are hidden.
	Stderr string
}

// Error says how it ended and what it said.
func (e *CommandError) Error() string {
	text := fmt.Sprintf("command %s: %s", e.Command, e.Reason)
	if e.Stderr != "" {
		text += ": " + e.Stderr
	}
	return text
}

// NetworkError is a call that got no whole answer. The other side may have done all
// the same what it asked for. It is retried.
type NetworkError struct {
	// URL is the one that was called, as the payload has it.
	URL string
	// Status is that of the answer whose body broke off, and 0 without answer.
	Status int
	// Err is why, with references in place of the secrets in its text. A timeout of
	// the call's own is in it as context.DeadlineExceeded.
	Err error
}

// Error says what came of which call.
func (e *NetworkError) Error() string {
	if e.Status > 0 {
		return fmt.Sprintf("%s answered %s, but its body broke off: %s", e.URL, statusText(e.Status), e.Err)
	}
	return fmt.Sprintf("%s did not answer: %s", e.URL, e.Err)
}

// Unwrap is why.
func (e *NetworkError) Unwrap() error { return e.Err }

// BodyError is a body that is longer than the call wants it. It comes wrapped
// with asynq.SkipRetry: the same call would give the same body.
type BodyError struct {
	// URL is the one that answered.
	URL string
	// Most is how many bytes were wanted at most.
	Most int64
	// Length is how many there are: -1 if that is not known.
	Length int64
}

// Error says how much too much it was.
func (e *BodyError) Error() string {
	if e.Length < 0 {
		return fmt.Sprintf("the body of %s has more than %d bytes, the most that may be kept", e.URL, e.Most)
	}
	return fmt.Sprintf("the body of %s has %d bytes: at most %d may be kept", e.URL, e.Length, e.Most)
}

// maxErrorText is as long as an error may be: asynq writes it to Redis.
const maxErrorText = 2000

// presentable is the error with a text that can be kept and shown, whatever the
// other side put into it, and without what is a secret in a URL: asynq cannot retry a job whose error is not UTF-8, since
// its message in protobuf cannot be written. errors.Is and errors.As see the error
// as before.
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

// StatusError is the error of an HTTP call whose answer had another status
// than expected. It comes wrapped with asynq.SkipRetry if the same call would
// only be refused again; see HTTPHandler.
type StatusError struct {
	Status int
	// Expect lists the statuses that were wanted; none means any 2xx.
	Expect []int
	// RetryAfter is how long the upstream asked to wait, by Retry-After or
	// by a quota that is used up, and at most a year: 0 if it did not ask.
	RetryAfter time.Duration
	// Until is until when it wants no calls at all, by this process's clock: see
	// Upstream.Until. It is zero if RetryAfter speaks of this call alone. It counts from when
	// the header was there: to read and to keep the body takes time.
	Until time.Time
	// URL is the one that answered, after redirects, with its secrets hidden.
	URL string
	// Redirect is why a redirect was not followed, and where it leads to.
	// Nil means that the answer was none.
	Redirect error
}

// Error says who answered what, what was wanted, where a redirect leads to, and how
// long the other side asked to wait.
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

// statusText is a status with its name, such as "404 Not Found".
func statusText(status int) string {
	return strings.TrimSpace(fmt.Sprintf("%d %s", status, http.StatusText(status)))
}

// permanent reports whether the same call would only be refused again. That is so
// for a redirect that was not followed, and for any 4xx, except:
//
//   - 408, 425 and 429, which speak of the moment;
//   - one with a Retry-After, which says when to come back;
//   - a 403 with a quota that is used up, which is how GitHub says 429. With another
//     status such a quota does not count: a 404 has nothing to do with it.
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

// ends is the error as a handler returns it: one that archives the job where the same call
// would only be refused again.
func (e *StatusError) ends(h http.Header) error {
	if e.permanent(h) {
		return fmt.Errorf("%w: %w", e, asynq.SkipRetry)
	}
	return e
}

// checkStatus is nil if the status is one of those that are expected, or any 2xx if none
// is, and else a StatusError. Its wait counts from at, when the header was there, so
// reading the body does not make it shorter.
func checkStatus(a Answer, expect []int, at time.Time) *StatusError {
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
