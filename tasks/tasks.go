// Package tasks has the built-in task types: their names, payloads, handlers and, except for
// commands, constructors. HTTPRequest makes one HTTP call, CrawlFetch fetches a page of a crawl and
// continues from there, and ExecHandler runs commands that its worker lists.
//
// They are plain asynq tasks and handlers. Validate checks a payload before it is enqueued, by the
// rules of the handler. Payloads are JSON objects, and are read strictly except for commands: an
// unknown field, a field given twice and a value of the wrong type are errors that say what would be
// right. A null is a field left out.
//
// A handler's error decides what becomes of the job. asynq archives a job whose error wraps
// asynq.SkipRetry, because another attempt would fail as well, and retries any other. Class
// classifies errors for retry policies.
//
// The handlers do not know limits, and work with a plain asynq server. Feedback is middleware that
// reports the answers of their calls to the limits of a scheduler.Server, and those of a program's own
// calls by CheckResponse, so a 429 blocks its key for all workers. To put a job back without a
// failure, handlers get a function such as HTTPHandler.PutBackAs.
package tasks

import (
	"errors"
	"fmt"
	"strings"
)

// ErrUnknownType is wrapped by Validate's error about a type that is not built in. A program's own
// worker may know the type.
var ErrUnknownType = errors.New("not a built-in task type")

// builtin lists the built-in types by name, with the check of a payload. Validate checks commands.
var builtin = []struct {
	name     string
	validate func(payload []byte) error
}{
	{TypeCrawlFetch, func(payload []byte) error { _, err := parse[CrawlFetch](payload); return err }},
	{TypeExec, nil},
	{TypeHTTPRequest, func(payload []byte) error { _, err := parse[HTTPRequest](payload); return err }},
}

// Types returns the names of the built-in types in alphabetical order, without single commands.
func Types() []string {
	names := make([]string, len(builtin))
	for i, t := range builtin {
		names[i] = t.name
	}
	return names
}

// Validate returns the error with which the handler would archive a task of that type. It does no
// I/O, so it does not know a worker's commands and secrets. The error wraps ErrUnknownType if the type
// is not built in.
func Validate(typename string, payload []byte) error {
	if strings.HasPrefix(typename, PrefixExec) {
		_, err := commandName(typename, payload)
		return err
	}
	for _, t := range builtin {
		if t.name == typename {
			return t.validate(payload)
		}
	}
	return fmt.Errorf("type %q: %w: want %s", typename, ErrUnknownType, strings.Join(Types(), " or "))
}
