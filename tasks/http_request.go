package tasks

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/hibiken/asynq"
	"golang.org/x/net/http/httpguts"

	"github.com/headgate/headgate/internal/duration"
	"github.com/headgate/headgate/internal/redact"
	"github.com/headgate/headgate/internal/strictjson"
)

// TypeHTTPRequest names the task that makes one HTTP call.
const TypeHTTPRequest = "http:request"

// DefaultTimeout is the default of HTTPRequest.Timeout.
const DefaultTimeout = 30 * time.Second

// DefaultResultBody and MaxResultBody are the default and the maximum of HTTPRequest.MaxBody if the
// body is kept in the result, which is stored in Redis.
const (
	DefaultResultBody = 64 << 10
	MaxResultBody     = 1 << 20
)

// HTTPRequest is the payload of an http:request task. Only URL is required:
//
//	{"method": "PUT", "url": "https://example.com/items/7",
//	 "headers": {"Content-Type": "application/json"}, "body": "{\"n\":1}",
//	 "timeout": "10s", "expect": [200, 404]}
//
// In the path and the query of URL and in the values of Headers, ${env:NAME} and ${file:/path}
// refer to secrets of the worker that HTTPHandler.Secrets allows. The worker inserts the secrets
// when it sends the request. Programs that build payloads from untrusted text must remove such
// references from the text.
type HTTPRequest struct {
	// Method is the HTTP method. The zero value means GET.
	Method string `json:"method,omitempty" want:"a text such as \"GET\""`
	// URL is an absolute http or https URL without user and password. Use a header Authorization
	// with a secret instead.
	URL string `json:"url" want:"a text such as \"https://example.com/path\""`
	// Headers are the request's headers. A header Host replaces the host of URL in the request, but
	// the call still goes to URL. The default User-Agent is "headgate".
	Headers map[string]string `json:"headers,omitempty" want:"an object of texts such as {\"Accept\": \"text/html\"}"`
	// Body is the request's body, in UTF-8.
	Body string `json:"body,omitempty" want:"a text"`
	// Timeout limits the time of the call, including reading the body. In JSON it is a text such
	// as "10s". The zero value means DefaultTimeout.
	Timeout time.Duration `json:"timeout,omitempty" want:"a text such as \"10s\""`
	// Expect lists the statuses that mean success. The zero value means any 2xx.
	Expect []int `json:"expect,omitempty" want:"a list of statuses such as [200, 404]"`
	// Redirects reports whether the job follows redirects. A redirect whose status is in Expect is
	// never followed. At every redirect the job is put back with the next URL, and its next run
	// needs the permits of that URL: see HTTPHandler.PutBackAs.
	Redirects bool `json:"redirects,omitempty" want:"true or false"`
	// Hops is the number of redirects that have led to URL, up to MaxRedirects.
	Hops int `json:"hops,omitempty" want:"a number of redirects"`
	// KeepHeaders names the headers of the response to keep in the result.
	KeepHeaders []string `json:"keep_headers,omitempty" want:"a list of names such as [\"ETag\"]"`
	// Save is a path below HTTPHandler.SaveDir. If the status is expected, the handler saves the
	// body to this path, and not in the result. If the path is a folder or ends in a slash, the file
	// in this folder is named by the body's SHA-256.
	Save string `json:"save,omitempty" want:"a path such as \"pages/\""`
	// MaxBody is the maximum number of bytes of the body. A longer body is cut in the result, and
	// fails the job if it is to be saved. The zero value means DefaultResultBody for the result, and
	// HTTPHandler.MaxSave for a saved body.
	MaxBody int64 `json:"max_body,omitempty" want:"a number of bytes such as 65536"`
}

// MaxRedirects is the maximum number of redirects that a job follows in all its runs together. RFC
// 9309 requires crawlers to follow at least five.
const MaxRedirects = 5

// NewHTTPRequest returns a task that makes the call. asynq deletes the result of a successful task
// at once if opts have no asynq.Retention. NewHTTPRequest returns the error of Validate.
func NewHTTPRequest(r HTTPRequest, opts ...asynq.Option) (*asynq.Task, error) {
	return newTask(TypeHTTPRequest, r, opts)
}

// MarshalJSON writes the timeout as text, and leaves out fields with their zero value.
func (r HTTPRequest) MarshalJSON() ([]byte, error) {
	type plain HTTPRequest
	wire := struct {
		plain
		Timeout string `json:"timeout,omitempty"`
	}{plain: plain(r)}
	if r.Timeout != 0 {
		wire.Timeout = r.Timeout.String()
	}
	return marshal(wire)
}

// UnmarshalJSON reads a payload strictly. It does not call Validate.
func (r *HTTPRequest) UnmarshalJSON(payload []byte) error {
	return strictjson.Decode("payload", payload, r)
}

// fromBody lists headers that a job cannot set: Go's HTTP client derives them from the body.
var fromBody = []string{"Content-Length", "Trailer", "Transfer-Encoding"}

// Validate returns an error about the first field that is wrong, without passwords and keys.
func (r HTTPRequest) Validate() error {
	if err := cmp.Or(validateURL(r.URL), validateHeaders(r.Headers)); err != nil {
		return err
	}
	for _, status := range r.Expect { // servers also use unregistered statuses; no final status is below 200
		if status < 200 || status > 599 {
			return fmt.Errorf("expect %d: want HTTP statuses from 200 to 599", status)
		}
	}
	for _, name := range r.KeepHeaders {
		if !httpguts.ValidHeaderFieldName(name) {
			return fmt.Errorf("keep_headers: name %q: want letters, digits and hyphens such as ETag", name)
		}
	}
	switch {
	case r.Method != "" && !httpguts.ValidHeaderFieldName(r.Method): // a method and a header's name are both tokens (RFC 9110, 5.6.2)
		return fmt.Errorf("method %q: want an HTTP method such as GET or POST", r.Method)
	case !utf8.ValidString(r.Body):
		return fmt.Errorf("body of %d bytes is not UTF-8: want text, because payloads are JSON", len(r.Body))
	case r.Timeout < 0:
		return fmt.Errorf("timeout %s: want a duration above zero, or zero for %s", duration.Exact(r.Timeout), duration.Exact(DefaultTimeout))
	case r.Hops < 0 || r.Hops > MaxRedirects:
		return fmt.Errorf("hops %d: want from 0 to %d redirects", r.Hops, MaxRedirects)
	case r.Save != "" && !validSave(r.Save):
		return fmt.Errorf("save %q: want a path such as pages/ or pages/home.html, without .. and not from the root", r.Save)
	case r.MaxBody < 0:
		return fmt.Errorf("max_body %d: want a number of bytes above zero", r.MaxBody)
	case r.Save == "" && r.MaxBody > MaxResultBody: // only the worker knows the maximum for a file
		return fmt.Errorf("max_body %d: want at most %d bytes in the result; a longer body can be saved to a file", r.MaxBody, MaxResultBody)
	}
	return nil
}

// validSave reports whether a path names a file or a folder below SaveDir, on every system. "./"
// means SaveDir itself.
func validSave(name string) bool {
	clean := path.Clean(name)
	return utf8.ValidString(name) && fs.ValidPath(clean) && filepath.IsLocal(filepath.FromSlash(clean)) &&
		!strings.ContainsAny(name, "\\\x00") && name != "."
}

// validateURL checks that the text is an http or https URL with a host and without a user.
func validateURL(text string) error {
	const want = "want an absolute URL such as https://example.com/path"
	if text == "" {
		return fmt.Errorf("url is missing: %s", want)
	}
	if _, err := References(text); err != nil {
		return fmt.Errorf("url: %w", err)
	}
	if at := reference.FindStringIndex(text); at != nil {
		if _, behind, _ := strings.Cut(text[:at[0]], "://"); !strings.ContainsAny(behind, "/?") { // limits use the host
			return fmt.Errorf("url: secret %s: want secrets only in the path and the query", text[at[0]:at[1]])
		}
	}
	u, err := url.Parse(text)
	if err != nil {
		// The error leaves out the URL, which may contain a password and cannot be redacted.
		if outer, ok := errors.AsType[*url.Error](err); ok {
			err = outer.Err
		}
		return fmt.Errorf("url is not a URL: %w: %s", err, want)
	}
	shown := redact.Query(u.Redacted())
	port, err := strconv.ParseUint(cmp.Or(u.Port(), "80"), 10, 16) // url.Parse accepts any digits
	switch {
	case u.User != nil:
		return fmt.Errorf("url %q: want it without user and password: use a header Authorization with a secret", shown)
	case u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("url %q: want it to begin with http:// or https://", shown)
	case u.Hostname() == "":
		return fmt.Errorf("url %q has no host: %s", shown, want)
	case err != nil || port == 0:
		return fmt.Errorf("url %q: want a port from 1 to 65535", shown)
	}
	return nil
}

// validateHeaders checks headers in the order of their names, so that errors are deterministic.
func validateHeaders(headers map[string]string) error {
	// A payload can have both "accept" and "Accept", but the request has one header of that name.
	given := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		canonical, value := http.CanonicalHeaderKey(name), headers[name]
		_, err := References(value)
		switch other, twice := given[canonical]; {
		case !httpguts.ValidHeaderFieldName(name):
			return fmt.Errorf("headers: name %q: want letters, digits and hyphens such as Content-Type", name)
		case twice:
			return fmt.Errorf("headers: %q and %q are the same header: want one of them", other, name)
		case slices.Contains(fromBody, canonical):
			return fmt.Errorf("headers: %q follows from the body: leave it out", name)
		case !validHeaderValue(value):
			if redact.Named(name) {
				value = redact.Hidden
			}
			return fmt.Errorf("headers: %s %q: want one line of text", name, value)
		case err != nil:
			return fmt.Errorf("headers: %s: %w", name, err)
		case canonical == "Host" && reference.MatchString(value): // limits and logs use the host
			return errors.New("headers: Host: want it without a secret")
		}
		given[canonical] = name
	}
	return nil
}
