package scheduler

import (
	"errors"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/throttle"
)

// ImpossibleError is why a job was archived or dropped without running: it can
// never have its permits, not in the time it has, or its limit does not exist. Its
// text says which limit refused, and what would be right; asynq shows it as the
// job's last error. A job that ran before and was put back by [Blocked] can end with
// it, too.
// errors.Is finds asynq.SkipRetry in it, or asynq.RevokeTask where the job is
// dropped.
type ImpossibleError struct {
	Decision throttle.Decision
	action   error
}

// Error says which limit refused and why.
func (e *ImpossibleError) Error() string { return e.Decision.String() }

// Unwrap makes asynq archive or delete the job at once.
func (e *ImpossibleError) Unwrap() error { return e.action }

// finalError is an error after which no retry follows, for asynq, and has the
// text of the error that it is, for everybody else.
type finalError struct{ error }

// Unwrap lets errors.Is and errors.As see the handler's own error.
func (e finalError) Unwrap() error { return e.error }

// Is reports that asynq is to retry no more, without the text that its own
// SkipRetry would add.
func (e finalError) Is(target error) bool { return target == asynq.SkipRetry }

// spacedError is a handler's own error with the delay that its rule sets before
// the next attempt.
type spacedError struct {
	error
	delay time.Duration
}

// Unwrap lets errors.Is and errors.As see the handler's own error.
func (e spacedError) Unwrap() error { return e.error }

// cause is the error that the program's own handler returned, without the delay
// that its rule set. A finalError stays: it has the handler's text, and tells an
// ErrorHandler, as asynq.SkipRetry does, that the job is archived.
func cause(err error) error {
	if spaced, ok := errors.AsType[spacedError](err); ok {
		return spaced.error
	}
	return err
}

// storable is a text as asynq can store it: in a protobuf string, which must be UTF-8.
// With any other asynq can end no attempt, and the job stays active.
func storable(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }

// storableError is an error whose own text could not be stored.
type storableError struct{ error }

// Error is the text without what is not UTF-8.
func (e storableError) Error() string { return storable(e.error.Error()) }

// Unwrap lets errors.Is and errors.As see the error itself.
func (e storableError) Unwrap() error { return e.error }

// withStorableText returns err, or if its text could not be stored one like it.
func withStorableText(err error) error {
	if err == nil || utf8.ValidString(err.Error()) {
		return err
	}
	return storableError{err}
}

// mendPanic does the same to the error that asynq itself makes of a panic. Nothing of
// ours can return that one: a panic that was recovered here would have lost its line.
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
