package throttle

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/duration"
	"github.com/headgate/headgate/internal/script"
)

// ErrUnavailable is wrapped by every error of Redis or of the connection: Redis was not reached,
// did not answer, answered with an error, or holds corrupt data. After such an error it is unknown
// whether the call took permits. A local limiter never returns it.
var ErrUnavailable = errors.New("limiter unavailable")

// ErrNoLimit is wrapped by the error of a method that should change a limit which does not exist.
// Calls of Allow return the Outcome NoLimit instead of an error.
var ErrNoLimit = errors.New("no such limit")

func noLimit(name string) error { return fmt.Errorf("%w: %s", ErrNoLimit, name) }

// unavailable wraps an error of Redis or of the connection in ErrUnavailable. It returns nil for
// nil. An error that already wraps ErrUnavailable stays as it is.
func unavailable(err error) error {
	if err == nil || errors.Is(err, ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// scriptError returns the error of a script that failed for these needs. If the script failed
// because of corrupt data, the error names the commands that reset the meters.
func scriptError(needs []Need, err error) error {
	if !script.IsCorrupt(err) {
		return unavailable(err)
	}
	var resets []string
	for _, n := range needs {
		resets = append(resets, fmt.Sprintf("headgate-worker limits reset %s --key %q", n.Limit, n.Key))
	}
	return fmt.Errorf("%w: Redis holds corrupt data; if a meter is corrupt, reset it with: %s: %w",
		ErrUnavailable, strings.Join(resets, "; "), err)
}

// FieldError reports one invalid field of an argument, such as a [Limit]. errors.As finds a
// FieldError in an error of this package. Limit.Validate can join several FieldErrors.
type FieldError struct {
	// Field is the name of the field, in lower case as in a config file.
	Field string
	// Value is the invalid value as text. A string is in quotation marks.
	Value string
	// Want describes the valid values.
	Want string
}

// Error returns the field, its value and the valid values: "capacity 0: want 1 to 10000000".
func (e *FieldError) Error() string { return e.Field + " " + e.Value + ": " + e.Want }

func fieldError(field string, value any, format string, args ...any) *FieldError {
	text := fmt.Sprint(value)
	switch v := value.(type) {
	case string:
		text = strconv.Quote(v)
	case time.Duration:
		text = duration.Exact(v)
	}
	return &FieldError{field, text, fmt.Sprintf(format, args...)}
}

// faults collects the FieldErrors of one value.
type faults []error

// want adds a FieldError if the field is not valid. Format and args describe the valid values.
func (f *faults) want(valid bool, field string, value any, format string, args ...any) {
	if !valid {
		*f = append(*f, fieldError(field, value, format, args...))
	}
}
