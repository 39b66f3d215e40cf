package tasks

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/http/httpguts"

	"github.com/headgate/headgate/internal/redact"
)

// A payload is kept in Redis, shown by tools and copied into logs, so it has no
// secrets but references to them. The worker puts the values in when it sends the
// request, and puts the references back into all that it keeps or says afterwards:
// results, errors, the payload of a redirect. What it cannot hide is a secret that
// the other side sends back in another form, such as its base64.

// reference matches ${env:NAME} and ${file:PATH}. The name must not contain braces.
var reference = regexp.MustCompile(`\$\{((?:env|file):[^{}]+)\}`)

// opening matches how a reference begins: one that is not complete is a mistake, and
// must not be sent to anybody as text.
var opening = regexp.MustCompile(`\$\{(?:env|file):`)

const (
	// minSecret is as short as a secret may be: a shorter one cannot be told
	// from other text when it is hidden.
	minSecret = 8
	// maxSecret keeps a path that leads to a device from being read without end.
	maxSecret = 16 << 10
)

// References is how many references to secrets begin in a text. It is an error if one of them is
// not complete.
func References(text string) (n int, err error) {
	if opening.MatchString(reference.ReplaceAllLiteralString(text, "-")) {
		err = errors.New("want a secret as ${env:NAME} or ${file:/path}")
	}
	return len(opening.FindAllString(text, -1)), err
}

// secrets are those of one call or command, in the order in which they are looked for. nil is
// a call without any.
type secrets []secret

// A secret is a value and the reference that stood for it in the payload. One in a
// URL is there twice, also as it is escaped: errors and redirects say it so. One that is
// written out in the URL's query has no reference, but redact.Hidden.
type secret struct{ value, reference string }

// escapeURL makes a value fit for the path and the query of a URL: a slash or an
// ampersand in it must not lead elsewhere.
func escapeURL(value string) string {
	// QueryEscape writes a blank as a plus, which in a path would be one.
	return strings.ReplaceAll(url.QueryEscape(value), "+", "%20")
}

// lookup is the value of a secret that may be had: in the environment of the worker,
// or in a file. Its errors name the secret and never its value.
func lookup(name string) (string, error) {
	kind, where, _ := strings.Cut(name, ":")
	// A variable that is not set is as good as an empty one: neither is a secret.
	value, err := os.Getenv(where), error(nil)
	if kind == "file" {
		value, err = readSecret(where)
	}
	switch {
	case err != nil:
		return "", fmt.Errorf("secret %s: %w", name, err)
	case value == "":
		return "", fmt.Errorf("secret %s is not set, or empty", name)
	case len(value) < minSecret:
		return "", fmt.Errorf("secret %s has %d bytes: want at least %d, for a shorter one cannot be kept out of results and logs", name, len(value), minSecret)
	case !validHeaderValue(value):
		return "", fmt.Errorf("secret %s: want one line of text", name)
	}
	return value, nil
}

// Secret is the secret that a text refers to, as ${env:API_TOKEN} and ${file:/path} do, and any
// other text itself. The error says why this process cannot have the secret.
func Secret(text string) (string, error) {
	if !IsReference(text) {
		return text, nil
	}
	return lookup(reference.FindStringSubmatch(text)[1])
}

// IsReference reports whether a text refers to a secret and has nothing else in it.
func IsReference(text string) bool { return text != "" && reference.FindString(text) == text }

// readSecret is the text of a file without the end of its last line. The path must
// be as it was matched against what is allowed: with .. in it, it could lead out of
// a folder that is.
func readSecret(name string) (string, error) {
	if !filepath.IsAbs(name) || filepath.Clean(name) != name {
		return "", errors.New("want the absolute path of a file")
	}
	file, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxSecret+1))
	if err == nil && len(text) > maxSecret {
		err = fmt.Errorf("want a file of at most %d bytes", maxSecret)
	}
	return strings.TrimRight(string(text), "\r\n"), err
}

// sort has the longest looked for first: another can be its beginning, and would
// leave its end.
func (s secrets) sort() {
	slices.SortStableFunc(s, func(a, b secret) int { return len(b.value) - len(a.value) })
}

// references are those secrets that can be written as a reference.
func (s secrets) references() secrets {
	return slices.DeleteFunc(slices.Clone(s), func(x secret) bool { return x.reference == redact.Hidden })
}

// hide puts references in place of the secrets.
func (s secrets) hide(text string) string {
	var pairs []string
	for _, x := range s {
		pairs = append(pairs, x.value, x.reference)
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

// hideUpTo is the first most bytes of the text, and to the end of a secret that
// begins in them, without the secrets. So the result can be longer than most.
func (s secrets) hideUpTo(text []byte, most int) []byte {
	end := 0
	for end < min(most, len(text)) {
		n := 1
		if i := slices.IndexFunc(s, func(x secret) bool { return x.begins(text[end:]) }); i >= 0 {
			n = len(s[i].value)
		}
		end += n
	}
	return []byte(s.hide(string(text[:end])))
}

// hideEnd is the last most bytes of the text without the secrets. Of one that begins
// before them it has nothing: its end would not be known for one. Where two overlap, as
// the text may begin within one, it has nothing of either.
func (s secrets) hideEnd(text []byte, most int) string {
	cut := max(0, len(text)-most)
	for i := max(0, cut-s.longest()); i < cut; i++ {
		for _, x := range s {
			if x.begins(text[i:]) {
				cut = max(cut, i+len(x.value))
			}
		}
	}
	return s.hide(string(text[cut:]))
}

// begins reports whether the text begins with the secret.
func (s secret) begins(text []byte) bool { return bytes.HasPrefix(text, []byte(s.value)) }

// longest is the length of the longest secret in bytes, 0 where there is none.
func (s secrets) longest() int {
	if len(s) == 0 {
		return 0
	}
	return len(s[0].value)
}

// hideIn is the error with a text that has no secrets in it: the error itself where
// there are none to hide.
func (s secrets) hideIn(err error) error {
	if text := s.hide(err.Error()); text != err.Error() {
		return &hiddenError{text, err}
	}
	return err
}

// hiddenError is an error in whose text secrets are shown as their references, or one that
// says what becomes of a job besides what its text tells.
type hiddenError struct {
	text string
	err  error
}

func (e *hiddenError) Error() string { return e.text }

// Unwrap is the error itself: it is not for logs.
func (e *hiddenError) Unwrap() error { return e.err }

// validHeaderValue reports whether the value is UTF-8 without control characters
// other than tabs: what can be sent and cannot smuggle in a second header. Secrets
// are held to it, too.
func validHeaderValue(value string) bool {
	return utf8.ValidString(value) && httpguts.ValidHeaderFieldValue(value)
}
