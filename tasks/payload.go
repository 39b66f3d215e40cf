package tasks

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/hibiken/asynq"

	durations "github.com/headgate/headgate/internal/duration"
)

// parse reads a payload strictly and validates it.
func parse[P interface{ Validate() error }](payload []byte) (of P, err error) {
	if err = decodeStrict(payload, &of); err == nil {
		err = of.Validate()
	}
	return of, err
}

// newTask validates a payload and returns its task.
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

// decodeStrict reads a payload, one JSON object, into a struct. After an error the struct is
// unchanged. The tag json of a field has its name, and the tag want describes valid values. Unlike
// json.Decoder, it distinguishes "URL" from "url", rejects a field that is given twice, and shows
// the wrong value.
func decodeStrict[P any](payload []byte, into *P) error {
	if !utf8.Valid(payload) {
		return errors.New("payload is not UTF-8: want JSON text")
	}
	// json.Decoder alone would ignore text after the object.
	var whole json.RawMessage
	if err := json.Unmarshal(payload, &whole); err != nil {
		return fmt.Errorf("payload is not JSON: %w", err)
	}
	var decoded P
	of := reflect.ValueOf(&decoded).Elem()
	var names []string
	for i := range of.NumField() {
		name, _, _ := strings.Cut(of.Type().Field(i).Tag.Get("json"), ",")
		names = append(names, name)
	}
	dec := json.NewDecoder(bytes.NewReader(payload))
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return fmt.Errorf("payload %s: want a JSON object with the fields %s", shorten(payload), strings.Join(names, ", "))
	}
	seen := map[string]bool{}
	for dec.More() {
		token, err := dec.Token()
		name, _ := token.(string)
		if seen[name] {
			return fmt.Errorf("field %q is given twice: want it once", name)
		}
		seen[name] = true
		var value json.RawMessage
		if err := errors.Join(err, dec.Decode(&value)); err != nil {
			return fmt.Errorf("payload is not JSON: %w", err)
		}
		i := slices.Index(names, name)
		if i < 0 {
			return fmt.Errorf("unknown field %q: want one of %s", name, strings.Join(names, ", "))
		}
		if err := decodeField(value, name, of.Type().Field(i).Tag.Get("want"), of.Field(i).Addr().Interface()); err != nil {
			return err
		}
	}
	*into = decoded
	return nil
}

// decodeField reads the value of a field. A null leaves the field unchanged.
func decodeField(value []byte, name, want string, into any) error {
	var text *string
	duration, ok := into.(*time.Duration)
	if ok {
		into = &text
	}
	if err := json.Unmarshal(value, into); err != nil {
		return fmt.Errorf("%s %s: want %s", name, shorten(value), want)
	}
	if text == nil {
		return nil
	}
	var err error
	if *duration, err = durations.Parse(*text); err != nil || *duration <= 0 {
		return fmt.Errorf(`%s %q: want a duration above zero such as "10s" or "1m30s"`, name, *text)
	}
	return nil
}

// shorten returns the start of a JSON value for an error: 60 bytes, without a partial character.
func shorten(value []byte) string {
	const maxLength = 60
	text := string(bytes.TrimSpace(value))
	if len(text) <= maxLength {
		return text
	}
	return strings.ToValidUTF8(text[:maxLength], "") + "…"
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
