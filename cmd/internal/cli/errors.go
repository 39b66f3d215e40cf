package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/headgate/headgate/throttle"
)

// UsageError is an error in the user's input. The exit code is 2.
type UsageError struct{ err error }

// Usagef is fmt.Errorf for a UsageError.
func Usagef(format string, args ...any) error {
	return &UsageError{fmt.Errorf(format, args...)}
}

func (e *UsageError) Error() string { return e.err.Error() }

// Unwrap returns the error.
func (e *UsageError) Unwrap() error { return e.err }

// FlagError turns an error about a field into one about the flag of that name.
func FlagError(err error) error {
	if field, ok := errors.AsType[*throttle.FieldError](err); ok {
		return Usagef("--%s %s: %s", strings.ReplaceAll(field.Field, "_", "-"), field.Value, field.Want)
	}
	return err
}

// ExitCode is the error of a command that has printed its error message already.
type ExitCode int

// The exit codes of commands; 0 is success.
const (
	Failed   ExitCode = 1
	BadInput ExitCode = 2
)

func (c ExitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// exit is a panic value with which a hook of kong ends the command. See Main.
type exit int
