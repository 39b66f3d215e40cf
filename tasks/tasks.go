package tasks

import (
	"errors"
	"fmt"
	"strings"

	"github.com/hibiken/asynq"
)

// ErrUnknownType is wrapped by Validate's error about a type that is not built
// in. A worker of the caller's own may know it all the same.
var ErrUnknownType = errors.New("not a built-in task type")

// builtin lists every built-in type by name.
var builtin = []struct {
	name     string
	validate func(payload []byte) error
	handler  asynq.Handler
}{
	{TypeCrawlFetch, validateCrawlFetch, &CrawlHandler{}},
	{TypeExec, func(payload []byte) error { return validateExec(TypeExec, payload) }, &ExecHandler{}},
	{TypeHTTPRequest, validateHTTPRequest, &HTTPHandler{}},
}

// Types lists the names of the built-in types in alphabetical order, without
// those of single commands.
func Types() []string {
	names := make([]string, len(builtin))
	for i, t := range builtin {
		names[i] = t.name
	}
	return names
}

// Register adds the handler of every built-in type to the mux. Like the mux
// itself it panics if one of the names is taken; a program that wants another
// handler for one type registers the handlers it wants instead. That is what one
// has to do that crawls or runs commands.
func Register(mux *asynq.ServeMux) {
	for _, t := range builtin {
		mux.Handle(t.name, t.handler)
	}
}

// Validate reports what is wrong with the payload of a task of that type: the
// reason for which its handler would archive it. The error wraps
// ErrUnknownType if the type is not built in.
func Validate(typename string, payload []byte) error {
	if strings.HasPrefix(typename, PrefixExec) {
		return validateExec(typename, payload)
	}
	for _, t := range builtin {
		if t.name == typename {
			return t.validate(payload)
		}
	}
	return fmt.Errorf("type %q: %w: want %s", typename, ErrUnknownType, strings.Join(Types(), " or "))
}
