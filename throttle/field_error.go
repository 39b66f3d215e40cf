package throttle

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

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
	if s, ok := value.(string); ok {
		text = strconv.Quote(s)
	}
	return &FieldError{field, text, fmt.Sprintf(format, args...)}
}

// choose finds a text among the names of an enumeration, and fails with a
// [*FieldError] that lists them.
func choose[T ~string](field string, text []byte, names []T) (int, error) {
	if i := slices.Index(names, T(text)); i >= 0 {
		return i, nil
	}
	return 0, fieldError(field, string(text), "want one of %s", strings.Join(texts(names), ", "))
}

// texts is the names as plain strings.
func texts[T ~string](names []T) []string {
	list := make([]string, len(names))
	for i, name := range names {
		list[i] = string(name)
	}
	return list
}
