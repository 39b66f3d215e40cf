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

// ErrUnavailable is wrapped by every error that means that Redis was not reached or did not answer.
// Whether permits were taken is then unknown. A local limiter never returns it.
var ErrUnavailable = errors.New("limiter unavailable")

// ErrNoLimit is wrapped by the errors of methods that change a limit if there is no limit of that
// name. Asking for its permits is no error: the Outcome is NoLimit.
var ErrNoLimit = errors.New("no such limit")

func noLimit(name string) error { return fmt.Errorf("%w: %s", ErrNoLimit, name) }

// unavailable wraps an error of Redis or of the connection in ErrUnavailable, once.
func unavailable(err error) error {
	if err == nil || errors.Is(err, ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// unusable returns the error of a script that was run for needs. If the script failed because of
// data that no script has written, the error names the command that makes each meter anew.
func unusable(needs []Need, err error) error {
	if !script.IsDamage(err) {
		return unavailable(err)
	}
	var resets []string
	for _, n := range needs {
		resets = append(resets, fmt.Sprintf("worker limits reset %s --key %q", n.Limit, n.Key))
	}
	return fmt.Errorf("%w: Redis holds data that no script has written; if they are a meter's, this makes it anew: %s: %w",
		ErrUnavailable, strings.Join(resets, "; "), err)
}

// FieldError is one thing that is wrong with an argument, such as a field of a [Limit]. A program
// can use its parts to report the error at its own place, such as the line of a config file. Use
// errors.As to find it; Validate joins several.
type FieldError struct {
	// Field is what is wrong, in lower case as config files write it.
	Field string
	// Value is what was given; texts are quoted.
	Value string
	// Want says what would be right.
	Want string
}

// Error returns the field, its value and what would be right: "capacity 0: want 1 to 10000000".
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

// faults collects what is wrong with a value, a FieldError each.
type faults []error

// want adds what would be right, unless so.
func (f *faults) want(so bool, field string, value any, format string, args ...any) {
	if !so {
		*f = append(*f, fieldError(field, value, format, args...))
	}
}
