// Package jobspec reads jobs from JSON lines and flags.
package jobspec

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/cmd/internal/config"
	"github.com/headgate/headgate/internal/duration"
	"github.com/headgate/headgate/internal/strictjson"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/throttle"
)

// Job is a job that is read from a JSON line or from flags.
type Job struct {
	Type    string          `json:"type" want:"a text such as \"http:request\""`
	Payload json.RawMessage `json:"payload" want:"JSON"`
	ID      string          `json:"id" want:"a text"`
	Options
	Row Row // from which the job was made; the zero Row if it was not
}

// Options say how to run a job.
type Options struct {
	Queue     string                   `json:"queue" want:"a text" placeholder:"NAME" help:"Queue (default \"default\")."`
	In        time.Duration            `json:"in" want:"a duration in quotes, such as \"90s\", \"24h\" or \"7d\"" placeholder:"DURATION" help:"Run it no earlier than after this time, such as 90s or 2h."`
	At        time.Time                `json:"at" want:"a time in quotes, such as \"2026-01-02T15:04:05Z\"" placeholder:"TIME" help:"Run it no earlier than this, such as 2026-01-02T15:04:05Z."`
	MaxRetry  *int                     `json:"max_retry" want:"a whole number" placeholder:"N" help:"Retries of a failed job before it is archived (default: max_retry of its type in the config, or 25). Waiting for a limit is no failure."`
	Retention time.Duration            `json:"retention" want:"a duration in quotes, such as \"90s\", \"24h\" or \"7d\"" placeholder:"DURATION" help:"How long to keep the finished job and its result, such as 24h (default: retention of its type in the config, or not at all)."`
	Priority  *scheduler.PriorityLevel `json:"priority" want:"\"high\", \"normal\" or \"low\"" placeholder:"high|normal|low" help:"Priority among jobs that wait for the same permits, instead of the config's."`
	Timeout   time.Duration            `json:"timeout" want:"a duration in quotes, such as \"90s\", \"24h\" or \"7d\"" placeholder:"DURATION" help:"Timeout of one run."`
	Deadline  time.Time                `json:"deadline" want:"a time in quotes, such as \"2026-01-02T15:04:05Z\"" placeholder:"TIME" help:"Archive the job if it is not done by this time."`
	Unique    time.Duration            `json:"unique" want:"a duration in quotes, such as \"90s\", \"24h\" or \"7d\"" placeholder:"DURATION" help:"Do not add the job if one with the same type, payload and queue was added with --unique and is not done. The job prevents such duplicates for at most this time, plus the time that it waits for limits."`
	Batch     string                   `json:"batch" want:"a text" placeholder:"NAME" help:"Batch of the job: a name for jobs whose ends are counted together. A job that has been in the batch is not added again."`
}

// Validate returns the first error of the job.
func (j Job) Validate() error {
	switch {
	case strings.TrimSpace(j.Type) == "":
		return errors.New("type is missing: want the type of the job, such as http:request")
	case strings.ContainsAny(j.ID, "\r\n") || len(j.ID) > 200:
		return fmt.Errorf("id %.40q: want one line of at most 200 bytes", j.ID)
	case len(j.Payload) > 0 && !json.Valid(j.Payload):
		return fmt.Errorf(`payload %s is not JSON: want an object such as {"url":"https://example.com/"}, in the shell's quotes`, strictjson.Shorten(j.Payload))
	}
	if err := strictjson.CheckDepth("payload", j.Payload); err != nil {
		return err
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
	case o.Batch != "" && config.CheckName(o.Batch) != nil:
		return wrong("batch", strconv.Quote(o.Batch), "want 1 to 100 letters, digits, or _ . : -")
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

// Fill adds a random ID if the job has none. It takes each missing option from defaults, or else
// from the config, or else from asynq. It converts In to At.
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
	j.MaxRetry = cmp.Or(j.MaxRetry, defaults.MaxRetry, task.MaxRetry, new(25))
	j.Queue = cmp.Or(j.Queue, defaults.Queue, "default")
	j.Priority = cmp.Or(j.Priority, defaults.Priority)
	j.Retention = cmp.Or(j.Retention, defaults.Retention, task.Retention)
	j.Timeout = cmp.Or(j.Timeout, defaults.Timeout, task.Timeout)
	j.Deadline = cmp.Or(j.Deadline, defaults.Deadline)
	j.Unique = cmp.Or(j.Unique, defaults.Unique)
	j.Batch = cmp.Or(j.Batch, defaults.Batch)
	return j
}

// Task returns the asynq task of a filled job, with more options.
func (j Job) Task(more ...asynq.Option) *asynq.Task {
	opts := []asynq.Option{ // a zero duration or time means asynq's default
		asynq.TaskID(j.ID), asynq.Queue(j.Queue), asynq.MaxRetry(*j.MaxRetry), asynq.ProcessAt(j.At),
		asynq.Retention(j.Retention), asynq.Timeout(j.Timeout), asynq.Deadline(j.Deadline),
	}
	if j.Unique > 0 {
		opts = append(opts, asynq.Unique(j.Unique))
	}
	if j.Priority != nil {
		opts = append(opts, scheduler.Priority(*j.Priority))
	}
	if j.Batch != "" {
		opts = append(opts, scheduler.InBatch(j.Batch))
	}
	task := scheduler.NewTask(j.Type, j.Payload, append(opts, more...)...)
	if !j.Row.IsZero() {
		task.Headers()[HeaderRow] = j.Row.header()
	}
	return task
}

// Example is a line with a job.
const Example = `{"type":"http:request","payload":{"url":"https://example.com/"}}`

// Parse reads and validates a job from a JSON object. The error names the field and its value.
func Parse(line []byte) (j Job, err error) {
	if bytes.HasPrefix(line, []byte("http")) {
		return j, errors.New("a URL alone is no job: want one JSON object a line, such as " + Example)
	}
	if err = strictjson.Decode("job", line, &j); err == nil {
		err = j.Validate()
	}
	return j, err
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
