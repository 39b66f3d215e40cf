// Package jobspec reads jobs from JSON lines and flags.
package jobspec

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/cmd/internal/config"
	"github.com/headgate/headgate/cmd/internal/expression"
	"github.com/headgate/headgate/internal/duration"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/throttle"
)

// Job is a job that is read from a JSON line or from flags.
type Job struct {
	Type    string
	Payload []byte
	ID      string
	Options
}

// Options say how to run a job.
type Options struct {
	Queue     string                   `placeholder:"NAME" help:"Queue (default \"default\")."`
	In        time.Duration            `placeholder:"DURATION" help:"Run it no earlier than after this time, such as 90s or 2h."`
	At        time.Time                `placeholder:"TIME" help:"Run it no earlier than this, such as 2026-01-02T15:04:05Z."`
	MaxRetry  *int                     `placeholder:"N" help:"Retries of a failed job before it is archived (default: max_retry of its type in the config, or 25). Waiting for a limit is no failure."`
	Retention time.Duration            `placeholder:"DURATION" help:"How long to keep the finished job and its result, such as 24h (default: retention of its type in the config, or not at all)."`
	Priority  *scheduler.PriorityLevel `placeholder:"high|normal|low" help:"Priority among jobs that wait for the same permits, instead of the config's."`
	Timeout   time.Duration            `placeholder:"DURATION" help:"Timeout of one run."`
	Deadline  time.Time                `placeholder:"TIME" help:"Archive the job if it is not done by this time."`
	Unique    time.Duration            `placeholder:"DURATION" help:"Do not add the job if one with the same type, payload and queue was added with --unique and is not done. The lock of a job ends after this time at the latest."`
}

// Validate returns the first error of the job.
func (j Job) Validate() error {
	switch {
	case strings.TrimSpace(j.Type) == "":
		return errors.New("type is missing: want the type of the job, such as http:request")
	case strings.ContainsAny(j.ID, "\r\n") || len(j.ID) > 200:
		return fmt.Errorf("id %.40q: want one line of at most 200 bytes", j.ID)
	case len(j.Payload) > 0 && !json.Valid(j.Payload):
		return fmt.Errorf(`payload %s is not JSON: want an object such as {"url":"https://example.com/"}, in the shell's quotes`, short(j.Payload))
	}
	return j.Options.Validate()
}

// Validate returns the first error of the options, a *throttle.FieldError.
func (o Options) Validate() error {
	wrong := func(field string, value any, want string) error {
		return &throttle.FieldError{Field: field, Value: fmt.Sprint(value), Want: want}
	}
	switch {
	case o.Queue != "" && config.CheckName(o.Queue) != nil:
		return wrong("queue", strconv.Quote(o.Queue), "want 1 to 100 letters, digits, or _ . : -")
	case o.In < 0:
		return wrong("in", duration.Exact(o.In), "want a duration of 0 or more, from now on")
	case o.In > 0 && !o.At.IsZero():
		return wrong("in", duration.Exact(o.In), "cannot be combined with at")
	case o.MaxRetry != nil && *o.MaxRetry < 0:
		return wrong("max_retry", *o.MaxRetry, "want 0 or more")
	case o.MaxRetry != nil && *o.MaxRetry > math.MaxInt32:
		return wrong("max_retry", *o.MaxRetry, "want at most 2147483647")
	}
	// asynq stores whole seconds, and 0 means its default.
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"retention", o.Retention}, {"timeout", o.Timeout}, {"unique", o.Unique}} {
		if d.value < 0 || d.value%time.Second != 0 {
			return wrong(d.name, duration.Exact(d.value), "want whole seconds, at least 1s")
		}
	}
	return nil
}

// DefaultMaxRetry is asynq's default.
const DefaultMaxRetry = 25

// Fill adds an ID and missing options: those of defaults, else of the config, else asynq's. It
// converts In to At, so that the job can be enqueued later.
func (j Job) Fill(defaults Options, c *config.Config) Job {
	task := c.Tasks[j.Type]
	if j.ID == "" {
		j.ID = uuid.NewString()
	}
	if j.In == 0 && j.At.IsZero() {
		j.In, j.At = defaults.In, defaults.At
	}
	if j.In > 0 {
		j.In, j.At = 0, time.Now().Add(j.In)
	}
	j.MaxRetry = cmp.Or(j.MaxRetry, defaults.MaxRetry, task.MaxRetry, new(DefaultMaxRetry))
	j.Queue = cmp.Or(j.Queue, defaults.Queue, "default")
	j.Priority = cmp.Or(j.Priority, defaults.Priority)
	j.Retention = cmp.Or(j.Retention, defaults.Retention, task.Retention)
	j.Timeout = cmp.Or(j.Timeout, defaults.Timeout, task.Timeout)
	j.Deadline = cmp.Or(j.Deadline, defaults.Deadline)
	j.Unique = cmp.Or(j.Unique, defaults.Unique)
	return j
}

// Task returns the asynq task of a filled job.
func (j Job) Task() *asynq.Task {
	opts := []asynq.Option{ // asynq ignores zero values of these options
		asynq.TaskID(j.ID), asynq.Queue(j.Queue), asynq.MaxRetry(*j.MaxRetry), asynq.ProcessAt(j.At),
		asynq.Retention(j.Retention), asynq.Timeout(j.Timeout), asynq.Deadline(j.Deadline),
	}
	if j.Unique > 0 {
		opts = append(opts, asynq.Unique(j.Unique))
	}
	if j.Priority != nil {
		opts = append(opts, scheduler.Priority(*j.Priority))
	}
	return scheduler.NewTask(j.Type, j.Payload, opts...)
}

// Saves reports whether the payload has the field save, with which an http:request saves the response
// to a file.
func Saves(j Job) bool {
	var call struct {
		Save string `json:"save"`
	}
	return json.Unmarshal(j.Payload, &call) == nil && call.Save != ""
}

// Rule returns the rule of a filled job. If it returns an error, a worker would archive the job.
func (j Job) Rule(c *config.Config) (scheduler.Rule, error) {
	return c.Tasks.Rule(&expression.Job{Type: j.Type, Queue: j.Queue, ID: j.ID, Payload: j.Payload})
}

type field struct {
	name string
	to   any
	want string
}

func (j *Job) fields() []field {
	const aTime = `a time in quotes, such as "2026-01-02T15:04:05Z"`
	const aDuration = `a duration in quotes, such as "90s", "24h" or "7d"`
	return []field{
		{"type", &j.Type, `a text such as "http:request"`},
		{"payload", (*json.RawMessage)(&j.Payload), "JSON"},
		{"id", &j.ID, "a text"},
		{"queue", &j.Queue, "a text"},
		{"in", &parsedText[time.Duration]{&j.In, ParseDuration}, aDuration},
		{"at", &parsedText[time.Time]{&j.At, ParseTime}, aTime},
		{"max_retry", &j.MaxRetry, "a whole number"},
		{"retention", &parsedText[time.Duration]{&j.Retention, ParseDuration}, aDuration},
		{"priority", &j.Priority, `"high", "normal" or "low"`},
		{"timeout", &parsedText[time.Duration]{&j.Timeout, ParseDuration}, aDuration},
		{"deadline", &parsedText[time.Time]{&j.Deadline, ParseTime}, aTime},
		{"unique", &parsedText[time.Duration]{&j.Unique, ParseDuration}, aDuration},
	}
}

// Parse reads and validates a job from a JSON object. The error names the field and its value.
func Parse(line []byte) (Job, error) {
	var j Job
	var object map[string]json.RawMessage
	decoder := json.NewDecoder(bytes.NewReader(line))
	if err := decoder.Decode(&object); err != nil || object == nil {
		what := errors.New(short(line))
		if _, syntax := errors.AsType[*json.SyntaxError](err); syntax || errors.Is(err, io.ErrUnexpectedEOF) {
			what = fmt.Errorf("not JSON, %w", err)
		}
		return j, fmt.Errorf(`%w: want an object such as {"type":"http:request","payload":{"url":"https://example.com/"}}`, what)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return j, errors.New("text after the object: want one JSON object per line")
	}
	var names []string
	for _, f := range j.fields() {
		names = append(names, f.name)
		text, ok := object[f.name]
		delete(object, f.name)
		if !ok {
			continue
		}
		err := json.Unmarshal(text, f.to)
		if form, ok := errors.AsType[*throttle.FieldError](err); ok {
			return j, fmt.Errorf("%s %s: %s", f.name, form.Value, form.Want)
		}
		if err != nil {
			return j, fmt.Errorf("%s %s: want %s", f.name, short(text), f.want)
		}
	}
	for name := range object {
		return j, fmt.Errorf("unknown field %q: want one of %s", name, strings.Join(names, ", "))
	}
	return j, j.Validate()
}

func short(text []byte) string {
	if len(text) > 60 {
		return strings.ToValidUTF8(string(text[:60]), "") + "…"
	}
	return string(text)
}

// parsedText is a JSON string that parse converts.
type parsedText[T any] struct {
	to    *T
	parse func(text string) (T, error)
}

// UnmarshalText sets the value.
func (p parsedText[T]) UnmarshalText(text []byte) (err error) {
	*p.to, err = p.parse(string(text))
	return err
}

// ParseDuration parses a duration such as "90s".
func ParseDuration(text string) (time.Duration, error) {
	d, err := duration.Parse(text)
	if err != nil {
		return 0, &throttle.FieldError{Field: "duration", Value: strconv.Quote(text), Want: "want a duration such as 90s, 24h or 7d"}
	}
	return d, nil
}

// ParseTime parses a time such as "2026-01-02T15:04:05Z".
func ParseTime(text string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return t, &throttle.FieldError{Field: "time", Value: strconv.Quote(text), Want: "want a time such as 2026-01-02T15:04:05Z"}
	}
	return t, nil
}
