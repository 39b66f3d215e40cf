package tasks

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

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
