package tasks

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/headgate/headgate/internal/redact"
)

// token is what RFC 9110 lets a method or the name of a header be (5.6.2).
var token = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")

// fromBody lists the headers that Go's client sets itself, silently dropping
// what it is given: better an error than a call other than the payload says.
var fromBody = []string{"Content-Length", "Trailer", "Transfer-Encoding"}

// Validate reports the first thing that is wrong with the call: the field, its
// value and what would be right. A URL in the error has no password and no key in it. It does
// no I/O: whether the host exists, and may be called, is found when it is called.
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
	// Any number that a status can have, registered or not: servers make up their own. One
	// below 200 is no end of a call.
	for _, status := range r.Expect {
		if status < 200 || status > 599 {
			return fmt.Errorf("expect %d: want HTTP statuses from 200 to 599", status)
		}
	}
	if err := r.validateRedirects(); err != nil {
		return err
	}
	return r.validateKept()
}

// validateRedirects reports what is wrong with how redirects are to be followed. A
// payload with too many hops is refused rather than cut down: it is one in a loop.
func (r HTTPRequest) validateRedirects() error {
	switch r.Redirects {
	case "", RedirectsOff, RedirectsSameHost, RedirectsRequeue:
	default:
		return fmt.Errorf("redirects %q: want off, same-host or requeue", r.Redirects)
	}
	if r.Hops < 0 || r.Hops > MaxRedirects {
		return fmt.Errorf("hops %d: want from 0 to %d redirects", r.Hops, MaxRedirects)
	}
	return nil
}

// validateKept checks what is to be kept of the answer. What MaxBody bounds is
// another thing for a file than for the result, and so is what it may be.
func (r HTTPRequest) validateKept() error {
	for _, name := range r.KeepHeaders {
		if !token.MatchString(name) {
			return fmt.Errorf("keep_headers: name %q: want letters, digits and hyphens such as ETag", name)
		}
	}
	if r.Save != "" && !validSave(r.Save) {
		return fmt.Errorf("save %q: want a path such as pages/ or pages/home.html, without .. and not from the root", r.Save)
	}
	// In the result MaxBody has a bound of its own; a file's only the worker knows.
	switch {
	case r.MaxBody < 0:
		return fmt.Errorf("max_body %d: want a number of bytes above zero", r.MaxBody)
	case r.Save == "" && r.MaxBody > MaxResultBody:
		return fmt.Errorf("max_body %d: want at most %d bytes in the result; a longer body can be saved to a file", r.MaxBody, MaxResultBody)
	}
	switch r.OnMaxBody {
	case "", OnMaxBodyTruncate:
	case OnMaxBodyFail:
		return nil
	default:
		return fmt.Errorf("on_max_body %q: want truncate or fail", r.OnMaxBody)
	}
	if r.Save != "" && r.OnMaxBody == OnMaxBodyTruncate {
		return errors.New("on_max_body \"truncate\": want fail or nothing with save, for half a file is not saved")
	}
	return nil
}

// validSave reports whether the path leads to a file or a folder below where
// it starts, and can be written in JSON. The payload is checked where it is enqueued,
// which may be another system than the worker's: so backslashes are refused
// everywhere, and on Windows names of devices as well. "." alone is refused, but "./"
// is the folder itself.
func validSave(name string) bool {
	clean := path.Clean(name)
	return utf8.ValidString(name) && fs.ValidPath(clean) && filepath.IsLocal(filepath.FromSlash(clean)) &&
		!strings.ContainsAny(name, "\\\x00") && name != "."
}

// validateURL refuses what cannot be called: anything but http and https with a
// host, and what would put a user's password into payloads.
func validateURL(text string) error {
	const want = "want an absolute URL such as https://example.com/path"
	if text == "" {
		return fmt.Errorf("url is missing: %s", want)
	}
	if err := validateReferencesIn(text); err != nil {
		return err
	}
	u, err := url.Parse(text)
	if err != nil {
		return fmt.Errorf("url is not a URL: %w: %s", parseReason(err), want)
	}
	shown := redact.Query(u.Redacted())
	if u.User != nil {
		return fmt.Errorf("url %q: want it without user and password: a header Authorization with a secret is for these", shown)
	}
	if u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("url %q: want it to begin with http:// or https://", shown)
	}
	if u.Hostname() == "" {
		return fmt.Errorf("url %q has no host: %s", redact.Query(u.Redacted()), want)
	}
	// url.Parse takes any digits, and a dialer would fail with each attempt.
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return fmt.Errorf("url %q: want a port from 1 to 65535", shown)
		}
	}
	return nil
}

// parseReason is what is wrong with a URL, without the URL: it may hold a
// password, and what cannot be parsed cannot be redacted.
func parseReason(err error) error {
	if outer, ok := errors.AsType[*url.Error](err); ok {
		return outer.Err
	}
	return err
}

// validateReferencesIn checks the secrets that a URL refers to. They stand
// behind the host, for a permit is asked for the host that the payload names. To
// look at the first is enough: what is behind it is behind the host, too.
func validateReferencesIn(text string) error {
	if err := checkReferences(text); err != nil {
		return fmt.Errorf("url: %w", err)
	}
	at := reference.FindStringIndex(text)
	if at == nil {
		return nil
	}
	_, behind, _ := strings.Cut(text[:at[0]], "://")
	if !strings.ContainsAny(behind, "/?") {
		return fmt.Errorf("url: secret %s: want secrets in the path or the query alone", text[at[0]:at[1]])
	}
	return nil
}

// validateHeaders reports what is wrong with headers. It goes through the names in
// order, so that the same headers always give the same error.
func validateHeaders(headers map[string]string) error {
	// By canonical name: a map of JSON can have both "accept" and "Accept".
	// Which of the two would be sent is left to chance, so neither is.
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
		if err := checkReferences(headers[name]); err != nil {
			return fmt.Errorf("headers: %s: %w", name, err)
		}
		// Permits are asked for the host, and archives and logs name it.
		if canonical == "Host" && reference.MatchString(headers[name]) {
			return errors.New("headers: Host: want it without a secret")
		}
		given[canonical] = name
	}
	return nil
}

// validHeaderValue reports whether the value is UTF-8 without control characters
// other than tabs: what can be sent and cannot smuggle in a second header. Secrets
// are held to it, too.
func validHeaderValue(value string) bool {
	control := func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }
	return utf8.ValidString(value) && !strings.ContainsFunc(value, control)
}
