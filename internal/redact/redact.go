// Package redact recognizes secrets by their names: headers, fields, and parameters of URLs such as
// api_key=…, token=… and signatures. A payload should refer to a secret, as in ${env:TOKEN}, but
// users often paste whole URLs.
package redact

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/strictjson"
)

// Hidden replaces a secret. It does not show the secret's length.
const Hidden = "•••"

// names are patterns of path.Match for the names of headers, fields and parameters whose values are
// secrets. A Redactor hides these values when a text is shown. If a request is redirected to
// another host or port, a header with a matching name is not sent there.
var names = []string{
	"*authorization*", "auth", "x-auth", "jwt", "x-jwt", "*signature*",
	"cookie", "set-cookie", "cookies", "*session?id", "*sessionid",
	"*password*", "*passwd*", "*passphrase*", "*secret*", "*token*", "*credential*",
	"*api?key*", "*apikey*", "*access?key*", "*accesskey*", "*private?key*", "*privatekey*", "*subscription?key*",
}

// Named reports whether the name of a header or a field, in any case, is the name of a secret, or
// matches a pattern in more. In a pattern, ? stands for exactly one character.
func Named(name string, more ...string) bool {
	name = strings.ToLower(name)
	fits := func(pattern string) bool { ok, _ := path.Match(strings.ToLower(pattern), name); return ok }
	return slices.ContainsFunc(names, fits) || slices.ContainsFunc(more, fits)
}

// expression returns a regular expression that finds names in text other than JSON. In such text ?
// matches a separator or nothing, so the pattern api?key finds api_key, api key and apikey.
func expression(patterns []string) string {
	var parts []string
	for _, p := range patterns {
		p = strings.ReplaceAll(regexp.QuoteMeta(p), `\*`, `[\w.~-]*`)
		parts = append(parts, strings.ReplaceAll(p, `\?`, `[-_. ]?`))
	}
	return strings.Join(parts, "|")
}

// parameter matches a parameter of a query whose value is a secret. Of the names that contain
// "token", only some match: page_token, for example, says where a list continues. Some short names,
// such as key, are names of secrets only in a query.
var parameter = regexp.MustCompile(`(?i)([?&;](?:key|pass|pwd|sig|` +
	expression(slices.DeleteFunc(slices.Clone(names), func(pattern string) bool { return pattern == "*token*" })) +
	`|(?:[\w.~-]*(?:access|auth|bearer|id|oauth|refresh|security|session|user)[-_.]?)?token` +
	`)=)([^&#\s"'<>\\]+)`)

// reference matches a reference to a secret, such as ${env:TOKEN}.
var reference = regexp.MustCompile(`^\$\{(?:env|file):[^{}]+\}$`)

// Query hides the secrets in the queries of a text's URLs. References to secrets, such as
// ${env:TOKEN}, stay.
func Query(text string) string {
	if !strings.Contains(text, "=") {
		return text
	}
	return parameter.ReplaceAllStringFunc(text, func(found string) string {
		name, value, _ := strings.Cut(found, "=")
		if reference.MatchString(value) {
			return found
		}
		return name + "=" + Hidden
	})
}

// Redactor removes secrets from texts that are shown. In JSON it hides the whole values of fields.
// In other text, such as an error or a log line, it hides what may be the value after a name, and
// so can hide too much. A secret without a name before it is hidden only in an Authorization header
// or in the user part of a URL. IDs, keys and task types are shown, because operators look up jobs
// by them.
type Redactor struct {
	names []string       // patterns of further names of secrets
	field *regexp.Regexp // a name with its value, in any text
}

// New returns a Redactor that also hides the values of further names. These are patterns of
// path.Match without [sets] and escapes. The error names the first pattern that is invalid. A
// pattern must match the whole name of a JSON field, and ? stands for one character there. In other
// text a pattern also matches the end of a longer name, and ? stands for a separator or nothing.
func New(more []string) (Redactor, error) {
	for _, name := range more {
		if _, err := path.Match(name, ""); err != nil || name == "" || strings.ContainsAny(name, "[]\\\n") {
			return Redactor{}, fmt.Errorf("redact %q: want the name of a field or header, where * stands for any text", name)
		}
	}
	// A quoted value ends with its quote. Any other value ends with its line, or before &, }, ] or
	// a quote. An unquoted value can contain commas and semicolons, as headers do. So a field that
	// follows a comma can be hidden, too.
	field := regexp.MustCompile(`(?i)((?:` + expression(slices.Concat(names, more)) + `)\\?["']?\s*(?:=>|[:=])\s*)` +
		`(\[?\s*\\?"(?:[^"\\\n]|\\[^"\n])*\\?"|\[?\s*'[^'\n]*'|(?:\$\{[^{}\n]*\}|[^\n&,;}\]"'])+(?:[;,][^\n&}\]"']*)?)`)
	return Redactor{more, field}, nil
}

// These secrets have no name: scheme matches the value of an Authorization header, and userinfo
// matches the user and the password of a URL.
var (
	scheme   = regexp.MustCompile(`(?i)\b(bearer|basic|digest|negotiate)([ +]|%20)+[\w.~+/=:-]{4,}`)
	userinfo = regexp.MustCompile(`(://)[^/\s"'@]+@`)
)

// Hides reports whether the name of a field marks its value as a secret. It ignores case.
func (r Redactor) Hides(name string) bool { return Named(name, r.names...) }

// Text returns a text without what looks like a secret. Values are hidden, names and references to
// secrets stay.
func (r Redactor) Text(text string) string {
	text = r.field.ReplaceAllStringFunc(text, func(found string) string {
		part := r.field.FindStringSubmatch(found)
		if reference.MatchString(strings.Trim(part[2], `\"'`)) {
			return found
		}
		return part[1] + Hidden
	})
	text = scheme.ReplaceAllString(text, "$1 "+Hidden)
	return Query(userinfo.ReplaceAllString(text, "$1"+Hidden+"@"))
}

// Value removes the secrets from a decoded JSON value at any depth, and returns the result. It
// changes maps and slices in place. A header has one of three forms: {"Name": "value"}, {"name":
// "Name", "value": "value"} or ["Name", "value"]. Every other string is replaced by its Text.
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
		if len(v) == 2 { // a header as ["name", "value"]
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

// Payload returns a payload without its secrets. JSON of up to 1 MiB that Decode accepts stays
// JSON, and stays unchanged if it has no secret. Any other payload is treated as Text.
func (r Redactor) Payload(data []byte) string {
	value, err := Decode(data, 1<<20)
	if err != nil {
		return r.Text(string(data))
	}
	before := Encode(value, "")
	if after := Encode(r.Value(value), ""); after != before {
		return after
	}
	return string(data)
}

// Encode returns a decoded JSON value as JSON, with indentation unless indent is empty.
func Encode(value any, indent string) string {
	var out strings.Builder
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", indent)
	_ = encoder.Encode(value) // it was decoded, so it can be encoded
	return strings.TrimSuffix(out.String(), "\n")
}

// maxDepth is the maximum number of levels of a JSON value. Indented output is up to this many
// times longer than its input.
const maxDepth = 64

// Decode reads one JSON value of at most size bytes and 64 levels, and keeps numbers as written.
func Decode(data []byte, size int) (value any, err error) {
	if len(data) > size {
		return nil, fmt.Errorf("JSON of %d bytes: want at most %d", len(data), size)
	}
	if strictjson.DeeperThan(maxDepth, data) >= 0 {
		return nil, fmt.Errorf("JSON nested more than %d levels deep: want at most %d", maxDepth, maxDepth)
	}
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
