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

// Redactor takes secrets out of texts that are shown. In JSON it knows what is a field,
// and hides its value whole. In any other text, an error or a log line, it looks for
// names followed by what may be a value, and rather hides too much. What is a secret
// by no name at all it cannot know. IDs, keys and task types are shown as they are: an
// operator looks jobs up by them, so secrets do not belong there.
//
// It looks at foreign texts of any making. Go's expressions take time in proportion to
// the text, whatever is in it, so none can be written that holds the page up.
type Redactor struct {
	names []string       // that are hidden beside those of Names
	field *regexp.Regexp // a name with its value, in any text
}

// New hides what Names says, and the names. They are patterns of path.Match
// without sets; the error names one that is not. In JSON a pattern must fit the whole
// name of a field; in other texts it may be the end of a longer one.
func New(names []string) (Redactor, error) {
	r := Redactor{names: names}
	for _, name := range names {
		if _, err := path.Match(name, ""); err != nil || name == "" || strings.ContainsAny(name, "[]\\\n") {
			return r, fmt.Errorf("redact %q: want the name of a field or header, where * stands for any text", name)
		}
	}
	var parts []string
	for _, name := range Names(names...) {
		// In a text * does not reach over a blank, into the words before a name, and ?
		// may be nothing: api_key, api key and apikey are one name there.
		text := strings.ReplaceAll(regexp.QuoteMeta(name), `\*`, `[\w.-]*`)
		parts = append(parts, strings.ReplaceAll(text, `\?`, `[-_. ]?`))
	}
	// A header's value goes to the end of its line, that of a field to its quote
	// or to the next field.
	r.field = regexp.MustCompile(`(?i)((?:` + strings.Join(parts, "|") + `)\\?["']?\s*(?:=>|[:=])\s*)` +
		`(\[?\s*\\?"(?:[^"\\\n]|\\[^"\n])*\\?"|\[?\s*'[^'\n]*'|[^\n&,;}\]"']+(?:[;,][^\n&}\]"']*)?)`)
	return r, nil
}

// Secrets without a name beside them: scheme finds the value of an Authorization
// header wherever it stands, and userinfo the user and the password of a URL.
var (
	scheme   = regexp.MustCompile(`(?i)\b(bearer|basic|digest|negotiate)([ +]|%20)+[\w.~+/=:-]{4,}`)
	userinfo = regexp.MustCompile(`(://)[^/\s"'@]+@`)
)

// Hides reports whether a field's value is a secret, by its name in any case.
func (r Redactor) Hides(name string) bool { return Named(name, r.names...) }

// Text is a text without what looks like a secret: the value goes, and its name stays.
func (r Redactor) Text(text string) string {
	text = r.field.ReplaceAllString(text, "${1}"+Hidden)
	text = scheme.ReplaceAllString(text, "$1 "+Hidden)
	return Query(userinfo.ReplaceAllString(text, "$1"+Hidden+"@"))
}

// Value is a JSON value without secrets, however deep they are. It changes what it is
// given. Headers come in three forms: as fields, as objects of a name and a value, and
// as pairs. Texts within are looked through as any text, since a log line or a URL may
// be one.
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

// Payload is a payload as it was enqueued, without secrets: JSON stays JSON. One that holds no
// secret is the same bytes.
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

// Decode reads one JSON value of at most size bytes, with its numbers as they are written. It
// refuses a value that is nested deeper than 64 levels: reading takes memory in proportion to the
// text, but writing such a value with indentation takes the text times its depth.
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

// depth is how many levels deep a JSON text is nested.
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
