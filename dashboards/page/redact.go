package page

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/redact"
)

// hidden stands where a secret was. It has the same length for all of them, so it does
// not tell theirs.
const hidden = redact.Hidden

// always are the fields that are never shown, whatever the options say, in the
// form of path.Match.
var always = []string{
	"authorization", "proxy-authorization", "cookie", "set-cookie", "cookies",
	"*password*", "*passwd*", "*secret*", "*token*", "*api?key*", "*apikey*", "*private?key*", "*credential*",
}

// redactor takes secrets out of texts that are shown. In JSON it knows what is a field,
// and hides its value whole. In any other text, an error or a log line, it looks for
// names followed by what may be a value, and rather hides too much. What is a secret
// by no name at all it cannot know. IDs, keys and task types are shown as they are: an
// operator looks jobs up by them, so secrets do not belong there.
//
// It looks at foreign texts of any making. Go's expressions take time in proportion to
// the text, whatever is in it, so none can be written that holds the page up.
type redactor struct {
	names []string       // in lower case
	field *regexp.Regexp // a name with its value, in any text
}

// newRedactor hides what is in always, and the names. They are patterns of path.Match
// without sets; the error names one that is not. In JSON a pattern must fit the whole
// name of a field; in other texts it may be the end of a longer one.
func newRedactor(names []string) (redactor, error) {
	r := redactor{names: slices.Clone(always)}
	for _, name := range names {
		if _, err := path.Match(name, ""); err != nil || name == "" || strings.ContainsAny(name, "[]\\\n") {
			return r, fmt.Errorf("page: redact %q: want the name of a field or header, where * stands for any text", name)
		}
		r.names = append(r.names, strings.ToLower(name))
	}
	var parts []string
	for _, name := range r.names {
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

// hides reports whether a field's value is a secret, by its name in any case.
func (r redactor) hides(name string) bool {
	name = strings.ToLower(name)
	return slices.ContainsFunc(r.names, func(pattern string) bool {
		ok, _ := path.Match(pattern, name)
		return ok
	})
}

// text is a text without what looks like a secret: the value goes, and its name stays.
func (r redactor) text(text string) string {
	text = r.field.ReplaceAllString(text, "${1}"+hidden)
	text = scheme.ReplaceAllString(text, "$1 "+hidden)
	return redact.Query(userinfo.ReplaceAllString(text, "$1"+hidden+"@"))
}

// block is a payload, a result or an error as it is shown: JSON is indented, with its
// numbers as they were written: through a float64 a long ID would become another one.
// What is too long to be read as JSON, and a JSON text, are taken as any text. Secrets
// are looked for in twice as much as is shown, so that one at the cut is found, and
// no more than that: a payload of megabytes is looked through in its beginning.
func (r redactor) block(data []byte) string {
	if len(data) <= 4*longText {
		var value any
		decoder := json.NewDecoder(bytes.NewReader(data))
		decoder.UseNumber()
		// Lines of JSON, or JSON with something behind it, are any text.
		if decoder.Decode(&value) == nil && !decoder.More() {
			if _, isText := value.(string); !isText {
				var out bytes.Buffer
				encoder := json.NewEncoder(&out)
				encoder.SetEscapeHTML(false)
				encoder.SetIndent("", "  ")
				if encoder.Encode(r.value(value)) == nil {
					return visible(strings.TrimRight(out.String(), "\n"), longText)
				}
			}
		}
	}
	text := visible(r.text(string(data[:min(len(data), 2*longText)])), longText)
	if len(data) > 2*longText { // not even the rest was looked at
		text += fmt.Sprintf("\n… of %s bytes", number(len(data)))
	}
	return text
}

// value is a JSON value without secrets, however deep they are. It changes what it is
// given. Headers come in three forms: as fields, as objects of a name and a value, and
// as pairs. Texts within are looked through as any text, since a log line or a URL may
// be one. The decoder lets nothing through that is nested deeper than 10,000 levels.
func (r redactor) value(v any) any {
	switch v := v.(type) {
	case map[string]any:
		named, _ := v["name"].(string) // a header as {"name": …, "value": …}
		for name, inner := range v {
			if r.hides(name) || named != "" && name == "value" && r.hides(named) {
				v[name] = hidden
			} else {
				v[name] = r.value(inner)
			}
		}
	case []any:
		if len(v) == 2 { // as ["name", "value"]
			if name, ok := v[0].(string); ok && r.hides(name) {
				return []any{name, hidden}
			}
		}
		for i := range v {
			v[i] = r.value(v[i])
		}
	case string:
		return r.text(v)
	}
	return v
}
