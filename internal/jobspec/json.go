package jobspec

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/throttle"
)

type field struct {
	name string
	to   any
	want string
}

func (j *Job) fields() []field {
	const aTime = `a time in quotes, such as "2026-01-02T15:04:05Z"`
	const aDuration = `a duration in quotes, such as "90s" or "24h"`
	return []field{
		{"type", &j.Type, `a text such as "http:request"`},
		{"payload", (*json.RawMessage)(&j.Payload), "JSON"},
		{"id", &j.ID, "a text"},
		{"queue", &j.Queue, "a text"},
		{"in", (*duration)(&j.In), aDuration},
		{"at", (*moment)(&j.At), aTime},
		{"max_retry", &j.MaxRetry, "a whole number"},
		{"retention", (*duration)(&j.Retention), aDuration},
		{"priority", &j.Priority, `"high", "normal" or "low"`},
		{"timeout", (*duration)(&j.Timeout), aDuration},
		{"deadline", (*moment)(&j.Deadline), aTime},
		{"unique", (*duration)(&j.Unique), aDuration},
	}
}

// Parse reads a job from a JSON object and validates it. The error names the
// field, its value and what would be right.
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
		return j, errors.New("something follows the object: want one JSON object a line")
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

// Line writes a filled job as Parse reads it. The payload stays as it is, to
// the letter, because asynq.Unique compares it.
func (j Job) Line() ([]byte, error) {
	object := map[string]any{}
	for _, f := range j.fields() {
		if to := reflect.ValueOf(f.to).Elem(); !to.IsZero() && (to.Kind() != reflect.Slice || to.Len() > 0) {
			object[f.name] = f.to
		}
	}
	var line bytes.Buffer
	encoder := json.NewEncoder(&line)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(object)
	return bytes.TrimSuffix(line.Bytes(), []byte("\n")), err
}

// duration and moment are written as text in JSON.
type (
	duration time.Duration
	moment   time.Time
)

// MarshalText writes "1m30s".
func (d duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads "90s".
func (d *duration) UnmarshalText(text []byte) error {
	value, err := ParseDuration(string(text))
	*d = duration(value)
	return err
}

// MarshalText writes "2026-01-02T15:04:05Z", of all that ParseTime reads: time's own refuses
// zones a day apart.
func (m moment) MarshalText() ([]byte, error) {
	return time.Time(m).AppendFormat(nil, time.RFC3339Nano), nil
}

// UnmarshalText reads "2026-01-02T15:04:05Z".
func (m *moment) UnmarshalText(text []byte) error {
	value, err := ParseTime(string(text))
	*m = moment(value)
	return err
}

// ParseDuration reads "90s". The error says what to write instead.
func ParseDuration(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, &throttle.FieldError{
			Field: "duration", Value: strconv.Quote(text),
			Want: "want a duration such as 90s, 30m or 24h",
		}
	}
	return d, nil
}

// ParseTime reads "2026-01-02T15:04:05Z". The error says what to write instead.
func ParseTime(text string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		y, m, d := time.Now().Date()
		tomorrow := time.Date(y, m, d+1, 9, 0, 0, 0, time.Local)
		return t, &throttle.FieldError{
			Field: "time", Value: strconv.Quote(text),
			Want: fmt.Sprintf("want a time such as %s (tomorrow at nine)", tomorrow.Format(time.RFC3339)),
		}
	}
	return t, nil
}
