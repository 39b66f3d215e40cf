package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"unicode/utf8"
)

// Text is bytes from elsewhere in JSON, exactly: a string, or where they are not
// UTF-8 an object {"base64": …}.
type Text string

// MarshalJSON implements json.Marshaler.
func (t Text) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(string(t)) {
		return json.Marshal(string(t))
	}
	return json.Marshal(map[string][]byte{"base64": []byte(t)})
}

// JSON writes a value for people and programs, indented.
func JSON(w io.Writer, v any) error { return encode(w, v, "  ") }

// JSONLine writes a value on one line.
func JSONLine(w io.Writer, v any) error { return encode(w, v, "") }

func encode(w io.Writer, v any, indent string) error {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", indent)
	if err := encoder.Encode(v); err != nil {
		return err
	}
	_, err := w.Write(escapeUnprintable(text.Bytes()))
	return err
}

// escapeUnprintable escapes what encoding/json leaves in strings and a terminal
// may obey: the upper control characters, and those that turn the direction.
// Outside of strings JSON has none of them.
func escapeUnprintable(text []byte) []byte {
	escaped := make([]byte, 0, len(text))
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRune(text[i:])
		if r == '\n' || plain(r, max(size, 2)) || r > 0xffff {
			escaped = append(escaped, text[i:i+size]...)
		} else {
			escaped = fmt.Appendf(escaped, `\u%04x`, r)
		}
		i += size
	}
	return escaped
}
