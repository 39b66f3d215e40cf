package throttle

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/duration"
	"github.com/headgate/headgate/internal/script"
)

// ErrUnavailable is wrapped by every error that means Redis could not be
// asked or did not answer. Whether the permits were taken is then unknown. [Local]
// never returns it.
var ErrUnavailable = errors.New("limiter unavailable")

// ErrNoLimit is wrapped by the errors of methods that change a limit where there
// is none of that name. To ask for its permits is no error: the Outcome says
// NoLimit.
var ErrNoLimit = errors.New("no such limit")

// noLimit says that there is no limit of that name.
func noLimit(name string) error { return fmt.Errorf("%w: %s", ErrNoLimit, name) }

// unavailable marks an error of Redis or of the way there, once. What it wraps can
// still be asked for, such as context.DeadlineExceeded.
func unavailable(err error) error {
	if err == nil || errors.Is(err, ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// unusable is the error of a script that asked for needs. If the script failed because of data
// that no script has written, it names the meters, and the command that makes each of them anew.
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

// FieldError is one thing that is wrong with a value that was given, such as a
// field of a [Limit]. Its parts are apart so that a program can say it in its own
// words or at its own place: a config file knows the line of a field. Use errors.As
// to find it; Validate joins several.
type FieldError struct {
	// Field is what is wrong, in lower case as config files write it.
	Field string
	// Value is what was given; texts are quoted.
	Value string
	// Want says what would be right.
	Want string
}

// Error is the field, its value and what would be right: "capacity 0: want 1
// to 10000000".
func (e *FieldError) Error() string { return e.Field + " " + e.Value + ": " + e.Want }

// fieldError makes a FieldError of any value.
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

// faults is what is wrong with a value, a FieldError each.
type faults []error

// want notes what would be right unless it is so.
func (f *faults) want(so bool, field string, value any, format string, args ...any) {
	if !so {
		*f = append(*f, fieldError(field, value, format, args...))
	}
}

// choose finds a text among the names of an enumeration, and fails with a
// [*FieldError] that lists them.
func choose(field, text string, names []string) (int, error) {
	if i := slices.Index(names, text); i >= 0 {
		return i, nil
	}
	return 0, fieldError(field, text, "want one of %s", strings.Join(names, ", "))
}
