package tasks

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// token is what RFC 9110 lets a method or the name of a header be.
var token = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")

// fromBody lists the headers that Go's client sets itself, silently dropping
// what it is given.
var fromBody = []string{"Content-Length", "Trailer", "Transfer-Encoding"}

// Validate reports the first thing that is wrong with the call: the field, its
// value and what would be right.
func (r HTTPRequest) Validate() error {
	if err := validateURL(r.URL); err != nil {
		return err
	}
	if r.Method != "" && !token.MatchString(r.Method) {
		return fmt.Errorf("method %q: want an HTTP method such as GET or POST", r.Method)
	}
	if err := validateHeaders(r.Headers); err != nil {
		return err
	}
	if !utf8.ValidString(r.Body) {
		return fmt.Errorf("body of %d bytes is not UTF-8: want text, for it travels as JSON", len(r.Body))
	}
	if r.Timeout < 0 {
		return fmt.Errorf("timeout %s: want a duration above zero, or zero for %s", r.Timeout, DefaultTimeout)
	}
	for _, status := range r.Expect {
		if status < 100 || status > 599 {
			return fmt.Errorf("expect %d: want HTTP statuses from 100 to 599", status)
		}
	}
	return nil
}

func validateURL(text string) error {
	const want = "want an absolute URL such as https://example.com/path"
	if text == "" {
		return fmt.Errorf("url is missing: %s", want)
	}
	u, err := url.Parse(text)
	if err != nil {
		return fmt.Errorf("url is not a URL: %w: %s", err, want)
	}
	if u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("url %q: want it to begin with http:// or https://", u.Redacted())
	}
	if u.Hostname() == "" {
		return fmt.Errorf("url %q has no host: %s", u.Redacted(), want)
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return fmt.Errorf("url %q: want a port from 1 to 65535", u.Redacted())
		}
	}
	return nil
}

// validateHeaders goes through the names in order, so that the same headers
// always give the same error.
func validateHeaders(headers map[string]string) error {
	given := make(map[string]string, len(headers))
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		canonical := http.CanonicalHeaderKey(name)
		if !token.MatchString(name) {
			return fmt.Errorf("headers: name %q: want letters, digits and hyphens such as Content-Type", name)
		}
		if other, twice := given[canonical]; twice {
			return fmt.Errorf("headers: %q and %q are the same header: want one of them", other, name)
		}
		if slices.Contains(fromBody, canonical) {
			return fmt.Errorf("headers: %q follows from the body: leave it out", name)
		}
		if !validHeaderValue(headers[name]) {
			return fmt.Errorf("headers: %s %q: want one line of text", name, headers[name])
		}
		given[canonical] = name
	}
	return nil
}

// validHeaderValue is whether the value is UTF-8 without control characters
// other than tabs: what can be sent and cannot smuggle in a second header.
func validHeaderValue(value string) bool {
	control := func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }
	return utf8.ValidString(value) && !strings.ContainsFunc(value, control)
}
