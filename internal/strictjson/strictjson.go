// Package strictjson reads JSON objects that users write: payloads and jobs.
package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/headgate/headgate/internal/duration"
)

// Decode reads a JSON object into a struct. After an error the struct is unchanged, except for the
// contents of pointers, maps and slices that it had before. A field's tag json is its name in JSON.
// Its tag want describes the valid values in error texts. A JSON field that matches no json tag is
// rejected. As in encoding/json, a null makes a pointer, map or slice nil and a json.RawMessage
// null, and leaves other fields unchanged. A duration is a text such as "90s" or "7d". The
// parameter what names the whole text in errors, such as "payload".
//
// Unlike json.Decoder, Decode distinguishes "URL" from "url". It rejects a field that is given
// twice, and text after the object. Its errors show the invalid value.
func Decode[T any](what string, text []byte, into *T) error {
	if !utf8.Valid(text) {
		return fmt.Errorf("%s is not UTF-8: want JSON text", what)
	}
	if err := CheckDepth(what, text); err != nil {
		return err
	}
	// json.Decoder alone would ignore text after the object.
	var whole json.RawMessage
	if err := json.Unmarshal(text, &whole); err != nil {
		return fmt.Errorf("%s is not JSON: %w", what, err)
	}
	decoded := *into
	object := reflect.ValueOf(&decoded).Elem()
	fields := map[string]reflect.StructField{}
	var names []string
	for _, f := range reflect.VisibleFields(object.Type()) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
			names, fields[name] = append(names, name), f
		}
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return fmt.Errorf("%s %s: want a JSON object with the fields %s", what, Shorten(text), strings.Join(names, ", "))
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
			return fmt.Errorf("%s is not JSON: %w", what, err)
		}
		f, ok := fields[name]
		if !ok {
			return fmt.Errorf("unknown field %q: want one of %s", name, strings.Join(names, ", "))
		}
		if err := decodeField(value, object.FieldByIndex(f.Index).Addr().Interface()); err != nil {
			return fmt.Errorf("%s %s: want %s", name, Shorten(value), f.Tag.Get("want"))
		}
	}
	*into = decoded
	return nil
}

func decodeField(value []byte, into any) error {
	d, ok := into.(*time.Duration)
	if !ok {
		return json.Unmarshal(value, into)
	}
	var text *string
	err := json.Unmarshal(value, &text)
	if err == nil && text != nil {
		*d, err = duration.Parse(*text)
	}
	return err
}

// Shorten returns a JSON value for an error. Of a value of more than 60 bytes it returns the start,
// without a partial character.
func Shorten(value []byte) string {
	const maxLength = 60
	text := string(bytes.TrimSpace(value))
	if len(text) <= maxLength {
		return text
	}
	return strings.ToValidUTF8(text[:maxLength], "") + "…"
}
