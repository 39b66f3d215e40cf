package tasks

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/http/httpguts"
)

// Payloads are kept in Redis, shown by tools and copied into logs, so they contain references
// instead of secrets. In results, errors and next payloads, the worker replaces secrets with their
// references. It does not recognize a secret that the upstream returns in another form, such as
// base64.

// reference matches ${env:NAME} and ${file:PATH}, and referenceStart its beginning.
var (
	reference      = regexp.MustCompile(`\$\{((?:env|file):[^{}]+)\}`)
	referenceStart = regexp.MustCompile(`\$\{(?:env|file):`)
)

// minSecret is the minimum length of a secret in bytes. A shorter secret could also occur in other
// text, where hide would replace it by mistake.
const minSecret = 8

// References returns the number of references to secrets in a text, with an error if one of them is
// incomplete.
func References(text string) (n int, err error) {
	if referenceStart.MatchString(reference.ReplaceAllLiteralString(text, "-")) {
		err = errors.New("want a secret as ${env:NAME} or ${file:/path}")
	}
	return len(referenceStart.FindAllString(text, -1)), err
}

// secrets are the secrets of one call or command.
type secrets []secret

// secret is a value and its reference. A secret in a URL has a second entry with the escaped value.
type secret struct{ value, reference string }

// add adds a secret. Longer secrets come first, because a shorter one can be their beginning.
func (s *secrets) add(value, reference string) {
	*s = append(*s, secret{value, reference})
	slices.SortStableFunc(*s, func(a, b secret) int { return len(b.value) - len(a.value) })
}

// escapeURL escapes a value for the path and the query of a URL.
func escapeURL(value string) string {
	// QueryEscape writes a blank as +, which is not a blank in a path.
	return strings.ReplaceAll(url.QueryEscape(value), "+", "%20")
}

// lookup returns the value of the secret env:NAME or file:PATH. Its errors never contain the value.
func lookup(name string) (string, error) {
	kind, where, _ := strings.Cut(name, ":")
	if kind == "file" && (!filepath.IsAbs(where) || filepath.Clean(where) != where) { // a path with .. could leave the folder that a pattern allows
		return "", fmt.Errorf("secret %s: want the absolute path of a file", name)
	}
	value, err := os.Getenv(where), error(nil)
	if kind == "file" {
		var text []byte
		text, err = os.ReadFile(where)
		value = strings.TrimRight(string(text), "\r\n")
	}
	switch {
	case err != nil:
		return "", fmt.Errorf("secret %s: %w", name, err)
	case value == "":
		return "", fmt.Errorf("secret %s is not set, or empty", name)
	case len(value) < minSecret:
		return "", fmt.Errorf("secret %s has %d bytes: want at least %d, because a shorter one cannot be hidden in results and logs", name, len(value), minSecret)
	case !validHeaderValue(value):
		return "", fmt.Errorf("secret %s: want one line of text", name)
	}
	return value, nil
}

// Secret returns the secret of a reference such as ${env:API_TOKEN} or ${file:/path}. It returns
// any other text unchanged. The error says why the secret is not available.
func Secret(text string) (string, error) {
	if !IsReference(text) {
		return text, nil
	}
	return lookup(reference.FindStringSubmatch(text)[1])
}

// IsReference reports whether a text is one reference to a secret and nothing else.
func IsReference(text string) bool { return text != "" && reference.FindString(text) == text }

// hide replaces the secrets with their references.
func (s secrets) hide(text string) string {
	var pairs []string
	for _, x := range s {
		pairs = append(pairs, x.value, x.reference)
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

// hideStart returns up to n bytes of the beginning of a text, with references in place of secrets.
// The text may be cut after n + longest bytes: hideStart drops the part of a secret at its end.
func (s secrets) hideStart(text []byte, n int) []byte {
	hidden := []byte(s.hide(string(text)))
	if len(text) > n {
		hidden = hidden[:max(0, min(n, len(hidden)-s.longest()))]
	}
	return hidden
}

// hideEnd does the same for the end of a text whose beginning may be cut.
func (s secrets) hideEnd(text []byte, n int) string {
	hidden := s.hide(string(text))
	if len(text) > n {
		hidden = hidden[min(len(hidden), max(len(hidden)-n, s.longest())):]
	}
	return hidden
}

// longest returns the length of the longest secret in bytes, or 0 if there are no secrets.
func (s secrets) longest() int {
	if len(s) == 0 {
		return 0
	}
	return len(s[0].value)
}

// hideIn returns an error that wraps err and whose text has references in place of secrets.
func (s secrets) hideIn(err error) error {
	if text := s.hide(err.Error()); text != err.Error() {
		return &hiddenError{text, err}
	}
	return err
}

// validHeaderValue reports whether the value is UTF-8 and has no control characters except tabs.
// Secrets must be valid header values: a newline in a secret could add a second header.
func validHeaderValue(value string) bool {
	return utf8.ValidString(value) && httpguts.ValidHeaderFieldValue(value)
}

// checkSecret returns an error if payloads may not refer to a secret.
func (h *HTTPHandler) checkSecret(name string) error {
	allowed := func(pattern string) bool { ok, _ := path.Match(pattern, name); return ok }
	if slices.ContainsFunc(h.Secrets, allowed) {
		return nil
	}
	return unable(fmt.Errorf("secret %s is not in http.secrets of the worker's config", name))
}

// checkSecrets returns an error that names every secret of a call that is not allowed. It does not
// read the secrets.
func (h *HTTPHandler) checkSecrets(call HTTPRequest) (failed error) {
	for _, text := range append(slices.Sorted(maps.Values(call.Headers)), call.URL) {
		for _, found := range reference.FindAllStringSubmatch(text, -1) {
			failed = errors.Join(failed, h.checkSecret(found[1]))
		}
	}
	return failed
}

// resolveSecrets returns the call with secrets in place of the references, and these secrets. Its
// error names every secret that is missing or not allowed.
func (h *HTTPHandler) resolveSecrets(call HTTPRequest) (HTTPRequest, secrets, error) {
	var found secrets
	var failed error
	fill := func(text string, escape func(string) string) string {
		return reference.ReplaceAllStringFunc(text, func(ref string) string {
			name := reference.FindStringSubmatch(ref)[1]
			if err := h.checkSecret(name); err != nil {
				failed = errors.Join(failed, err)
				return ""
			}
			value, err := lookup(name)
			failed = errors.Join(failed, err)
			found.add(value, ref) // a response can contain the value with and without the escapes
			found.add(escape(value), ref)
			return escape(value)
		})
	}
	withSecrets := call
	withSecrets.URL = fill(call.URL, escapeURL)
	withSecrets.Headers = make(map[string]string, len(call.Headers))
	for name, value := range call.Headers {
		withSecrets.Headers[name] = fill(value, func(s string) string { return s })
	}
	return withSecrets, found, failed
}
