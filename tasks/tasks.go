// Package tasks holds the task types that are built in: the name of each, its
// payload, its handler and, but for commands, its constructor. HTTPRequest makes
// one HTTP call, CrawlFetch fetches a page of a crawl and goes on from there, and
// ExecHandler runs commands that its worker lists.
//
// They are plain asynq tasks with plain asynq handlers. Register adds all of
// them to a mux; Validate checks a payload before it is enqueued, by the same
// rules as the handler. Payloads are JSON objects and, but for those of commands,
// are read strictly: an unknown field, a field given twice or a value of the wrong
// type is an error that says what would be right. A null is a field left out.
//
// A handler's error says what should become of the job. One that wraps
// asynq.SkipRetry cannot get better by itself, and asynq archives the job at
// once; every other error is worth another attempt. Class sorts the errors for
// policies of retries.
//
// The handlers know nothing of limits, and work with a plain asynq server, too. Feedback
// is middleware that has the limits of a scheduler.Server learn from the answers to their
// calls, and from those to a program's own by CheckAnswer: so a 429 shuts its key for all
// workers. What puts a job back without a failure they are given, as in
// HTTPHandler.PutBackAs.
package tasks

import (
	"errors"
	"fmt"
	"strings"

	"github.com/hibiken/asynq"
)

// ErrUnknownType is wrapped by Validate's error about a type that is not built
// in. A worker of the caller's own may know it all the same, so that whoever
// enqueues such a task may want to go on.
var ErrUnknownType = errors.New("not a built-in task type")

// builtin lists every built-in type by name. The handlers are zero values: the
// careful ones, of which that of crawls and that of commands archive every job.
var builtin = []struct {
	name     string
	validate func(payload []byte) error // of commands Validate knows
	handler  asynq.Handler
}{
	{TypeCrawlFetch, func(payload []byte) error { _, err := parse[CrawlFetch](payload); return err }, &CrawlHandler{}},
	{TypeExec, nil, &ExecHandler{}},
	{TypeHTTPRequest, func(payload []byte) error { _, err := parse[HTTPRequest](payload); return err }, &HTTPHandler{}},
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
// itself it panics if one of the names is taken. The handlers are zero values:
// HTTP calls go to public addresses alone, and every crawl and every command is
// archived with the reason. A program that allows more, crawls or runs commands
// adds handlers of its own to the mux instead: PrefixExec is the pattern for those
// of all commands.
func Register(mux *asynq.ServeMux) {
	for _, t := range builtin {
		mux.Handle(t.name, t.handler)
	}
}

// Validate reports what is wrong with the payload of a task of that type: the
// reason for which its handler would archive it. It asks nobody: what only the
// worker knows, such as which commands and secrets it has, is not checked. The
// error wraps ErrUnknownType if the type is not built in.
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
