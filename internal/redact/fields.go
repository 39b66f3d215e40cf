package redact

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"strings"
)

// Redactor removes secrets from texts that are shown. In JSON it hides the whole values of fields. In
// other text, such as an error or a log line, it looks for names followed by what may be a value, and
// may hide too much. It finds secrets by their names only. IDs, keys and task types are shown, because
// operators look up jobs by them, so secrets do not belong there.
//
// Go's regular expressions take time in proportion to the text, so no text can hold up the page.
type Redactor struct {
	names []string       // that are hidden beside those of Names
	field *regexp.Regexp // a name with its value, in any text
}

// New returns a Redactor for the names of Names and further names. They are patterns of path.Match
// without sets; the error names one that is not. In JSON a pattern must match the whole name of a field,
// in other text it may be the end of a longer name.
func New(names []string) (Redactor, error) {
	r := Redactor{names: names}
	for _, name := range names {
		if _, err := path.Match(name, ""); err != nil || name == "" || strings.ContainsAny(name, "[]\\\n") {
			return r, fmt.Errorf("redact %q: want the name of a field or header, where * stands for any text", name)
		}
	}
	var parts []string
	for _, name := range Names(names...) {
		// In a text * does not match a blank, and ? may be nothing: api_key, api key and apikey
		// are one name.
		text := strings.ReplaceAll(regexp.QuoteMeta(name), `\*`, `[\w.-]*`)
		parts = append(parts, strings.ReplaceAll(text, `\?`, `[-_. ]?`))
	}
	// A quoted value ends with its quote. Any other value ends with its line, or before &, }, ] or a
	// quote. It may contain commas and semicolons, as headers do, so the next field may be hidden, too.
	r.field = regexp.MustCompile(`(?i)((?:` + strings.Join(parts, "|") + `)\\?["']?\s*(?:=>|[:=])\s*)` +
		`(\[?\s*\\?"(?:[^"\\\n]|\\[^"\n])*\\?"|\[?\s*'[^'\n]*'|[^\n&,;}\]"']+(?:[;,][^\n&}\]"']*)?)`)
	return r, nil
}

// Secrets without a name: scheme matches the value of an Authorization header, and userinfo the user and
// the password of a URL.
var (
	scheme   = regexp.MustCompile(`(?i)\b(bearer|basic|digest|negotiate)([ +]|%20)+[\w.~+/=:-]{4,}`)
	userinfo = regexp.MustCompile(`(://)[^/\s"'@]+@`)
)

// Hides reports whether the name of a field marks its value as a secret. It ignores case.
func (r Redactor) Hides(name string) bool { return Named(name, r.names...) }

// Text returns a text without what looks like a secret. Values are hidden, names stay.
func (r Redactor) Text(text string) string {
	text = r.field.ReplaceAllString(text, "${1}"+Hidden)
	text = scheme.ReplaceAllString(text, "$1 "+Hidden)
	return Query(userinfo.ReplaceAllString(text, "$1"+Hidden+"@"))
}

// Value removes the secrets from a JSON value, which it changes, at any depth. It knows headers as fields,
// as objects of a name and a value, and as pairs. Texts within the value are treated by Text.
func (r Redactor) Value(v any) any {
	switch v := v.(type) {
	case map[string]any:
		named, _ := v["name"].(string) // a header as {"name": …, "value": …}
		for name, inner := range v {
			if r.Hides(name) || named != "" && name == "value" && r.Hides(named) {
				v[name] = Hidden
			} else {
				v[name] = r.Value(inner)
			}
		}
	case []any:
		if len(v) == 2 { // as ["name", "value"]
			if name, ok := v[0].(string); ok && r.Hides(name) {
				return []any{name, Hidden}
			}
		}
		for i := range v {
			v[i] = r.Value(v[i])
		}
	case string:
		return r.Text(v)
	}
	return v
}

// Payload returns a payload without secrets. JSON stays JSON, and a payload without secrets is unchanged.
func (r Redactor) Payload(data []byte) string {
	value, err := Decode(data, maxPayload)
	if err != nil {
		return r.Text(string(data))
	}
	before := encode(value)
	if after := encode(r.Value(value)); after != before {
		return after
	}
	return string(data)
}

// Decode reads one JSON value of at most size bytes and keeps its numbers as they are written. It rejects
// more than 64 levels: the output with indentation takes the text's length times its depth.
func Decode(data []byte, size int) (any, error) {
	if len(data) > size {
		return nil, fmt.Errorf("JSON of %d bytes: want at most %d", len(data), size)
	}
	if d := depth(data); d > maxDepth {
		return nil, fmt.Errorf("JSON nested %d levels deep: want at most %d", d, maxDepth)
	}
	var value any
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		return nil, err
	}
	if _, err := decoder.Token(); err != io.EOF {
		return nil, errors.New("JSON: want one value")
	}
	return value, nil
}

// depth returns how many levels deep a JSON text is nested.
func depth(data []byte) int {
	deepest, now, text := 0, 0, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case text && c == '\\':
			i++
		case c == '"':
			text = !text
		case text:
		case c == '[' || c == '{':
			now++
			deepest = max(deepest, now)
		case c == ']' || c == '}':
			now--
		}
	}
	return deepest
}

func encode(value any) string {
	var out strings.Builder
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(value) // it was decoded, so it can be encoded
	return strings.TrimSuffix(out.String(), "\n")
}

const (
	maxPayload = 1 << 20 // bytes of a payload that is read as JSON
	maxDepth   = 64      // levels of a value that is read as JSON
)
