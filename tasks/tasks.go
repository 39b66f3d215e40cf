// Package tasks implements the built-in task types: http:request makes one HTTP call
// ([HTTPHandler]), crawl:fetch fetches a page of a crawl and enqueues its links ([CrawlHandler]),
// and exec:* runs a command of the worker ([ExecHandler]).
//
// They are ordinary asynq tasks and handlers. Payloads are JSON objects. Except for commands, a
// payload is invalid if it has an unknown field, a field twice, or a value of the wrong type. A
// null is treated like a missing field.
//
// asynq archives a job whose error wraps asynq.SkipRetry, because another attempt would fail as
// well, and retries a job with any other error.
//
// The handlers use no limits, and run on any asynq server. With the middleware of [Feedback], a 429
// blocks the limits of a scheduler.Server for all workers; handlers of other calls report their
// responses with [CheckResponse].
package tasks

import (
	"errors"
	"fmt"
	"strings"
)

// ErrUnknownType is wrapped by Validate's error about a type that is not built in. A program's own
// worker may know the type.
var ErrUnknownType = errors.New("not a built-in task type")

// builtin lists the built-in types by name. The payloads of commands are validated separately.
var builtin = []struct {
	name     string
	validate func(payload []byte) error
}{
	{TypeCrawlFetch, func(payload []byte) error { _, err := parse[CrawlFetch](payload); return err }},
	{TypeExec, nil},
	{TypeHTTPRequest, func(payload []byte) error { _, err := parse[HTTPRequest](payload); return err }},
}

// Types returns the names of the built-in types in alphabetical order. TypeExec stands for all
// commands.
func Types() []string {
	names := make([]string, len(builtin))
	for i, t := range builtin {
		names[i] = t.name
	}
	return names
}

// Validate returns the error with which the handler would archive a task of that type. It does not
// check whether the worker has the command or the secrets. The error wraps ErrUnknownType if the
// type is not built in.
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
