// Package tasks implements the built-in task types: http:request makes one HTTP call
// ([HTTPHandler]), crawl:fetch fetches a page of a crawl and enqueues its links ([CrawlHandler]),
// and exec:* runs a command of the worker ([ExecHandler]).
//
// They are ordinary asynq tasks and handlers. Payloads are JSON objects. The payload of
// http:request or crawl:fetch is invalid if it has an unknown field, a field twice, or a value of
// the wrong type. A null is treated like a missing field.
//
// If another attempt would fail as well, a handler's error wraps asynq.SkipRetry, and asynq
// archives the job. If only this worker cannot run the job, because of its config, the error wraps
// scheduler.ErrUnable. After any other error asynq retries the job.
//
// The handlers take no permits. They run on any asynq server, except [CrawlHandler], which needs a
// scheduler.Server. On a scheduler.Server with the middleware of [Feedback], a 429 blocks the keys
// of the job's limits for all workers. Other handlers that make calls report the responses with
// [CheckResponse].
package tasks

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/strictjson"
)

// ErrUnknownType is wrapped by Validate's error about a type that is not built in. A worker may
// still have a handler for the type.
var ErrUnknownType = errors.New("not a built-in task type")

// Types returns the names of the built-in types except exec:*, whose names depend on the worker.
func Types() []string { return []string{TypeCrawlFetch, TypeHTTPRequest} }

// Validate returns the error with which the built-in handler would archive a task because of its
// payload. It does not check what depends on the worker. If the type is not built in, the error
// wraps ErrUnknownType.
func Validate(typename string, payload []byte) (err error) {
	switch {
	case typename == TypeCrawlFetch:
		_, err = parse[CrawlFetch](payload)
	case typename == TypeHTTPRequest:
		_, err = parse[HTTPRequest](payload)
	case strings.HasPrefix(typename, PrefixExec):
		err = validateCommand(payload)
	default:
		err = fmt.Errorf("type %q: %w: want %s, %s or %sNAME", typename, ErrUnknownType, TypeCrawlFetch, TypeHTTPRequest, PrefixExec)
	}
	return err
}

// parse reads a payload strictly and calls Validate on it.
func parse[P interface{ Validate() error }](payload []byte) (decoded P, err error) {
	if err = strictjson.Decode("payload", payload, &decoded); err == nil {
		err = decoded.Validate()
	}
	return decoded, err
}

// newTask validates a payload and returns its task.
func newTask(typename string, payload interface{ Validate() error }, opts []asynq.Option) (*asynq.Task, error) {
	err := payload.Validate()
	var text []byte
	if err == nil {
		text, err = marshal(payload)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", typename, err)
	}
	return asynq.NewTask(typename, text, opts...), nil
}

// marshal is json.Marshal without \u0026 for &, because people read payloads and results.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
