package tasks

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/hibiken/asynq"
)

// payload is what a type of task has, but for commands.
type payload[P any] interface {
	*P
	json.Unmarshaler
	Validate() error
}

// parse reads a payload of one of the two kinds strictly, and reports what is wrong with it.
func parse[P any, R payload[P]](payload []byte) (of P, err error) {
	if err = R(&of).UnmarshalJSON(payload); err == nil {
		err = R(&of).Validate()
	}
	return of, err
}

// newTask is a task of a payload that is checked.
func newTask(typename string, of interface{ Validate() error }, opts []asynq.Option) (*asynq.Task, error) {
	err := of.Validate()
	var text []byte
	if err == nil {
		text, err = marshal(of)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", typename, err)
	}
	return asynq.NewTask(typename, text, opts...), nil
}

// field is one field of a payload: where its value goes and, for the error
// when a value does not fit, what would be right.
type field struct {
	name string
	into any    // a pointer to a zero value; a JSON null leaves it so
	want string // completes "want …", with an example
}

// decodeStrict reads a payload, one JSON object, into its fields. It does not
// use json.Decoder.DisallowUnknownFields, which takes "URL" for "url", lets a
// second value of a field win, and does not show the value that is wrong.
//
// The whole is read once before, without looking at fields: so what is no JSON is
// told as that, wherever it is, and nothing can stand behind the object. After an
// error some of the fields may be filled; callers decode into a copy.
func decodeStrict(payload []byte, fields ...field) error {
	if !utf8.Valid(payload) {
		return errors.New("payload is not UTF-8: want JSON text")
	}
	// json.Decoder alone would pass over what stands behind the object.
	var whole json.RawMessage
	if err := json.Unmarshal(payload, &whole); err != nil {
		return fmt.Errorf("payload is not JSON: %w", err)
	}
	dec := json.NewDecoder(bytes.NewReader(payload))
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return fmt.Errorf("payload %s: want a JSON object with the fields %s", shorten(payload), fieldNames(fields))
	}
	// The second value would win, and whoever wrote the payload may mean the first.
	seen := make(map[any]bool, len(fields))
	for dec.More() {
		name, err := dec.Token()
		if seen[name] {
			return fmt.Errorf("field %q is given twice: want it once", name)
		}
		seen[name] = true
		var value json.RawMessage
		if err := errors.Join(err, dec.Decode(&value)); err != nil {
			return fmt.Errorf("payload is not JSON: %w", err)
		}
		// Few enough to look at one after the other.
		i := slices.IndexFunc(fields, func(f field) bool { return f.name == name })
		if i < 0 {
			return fmt.Errorf("unknown field %q: want one of %s", name, fieldNames(fields))
		}
		if err := json.Unmarshal(value, fields[i].into); err != nil {
			return fmt.Errorf("%s %s: want %s", fields[i].name, shorten(value), fields[i].want)
		}
	}
	return nil
}

// fieldNames lists the fields, for errors, in their order in the code.
func fieldNames(fields []field) string {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.name
	}
	return strings.Join(names, ", ")
}

// shorten is the start of a JSON value, enough to recognise it in an error: 60
// bytes, without a character that this cuts through.
func shorten(value []byte) string {
	const most = 60
	text := string(bytes.TrimSpace(value))
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// marshal is json.Marshal without \u0026 for the & in URLs and the like:
// people read payloads and results in tools.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
