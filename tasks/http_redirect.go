package tasks

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/canonical"
	"github.com/headgate/headgate/internal/redact"
	"github.com/headgate/headgate/tasks/internal/links"
)

// RedirectError ends the run of a job with RedirectsRequeue: the job continues with Next. It
// comes wrapped with the error of HTTPHandler.PutBackAs, or with asynq.SkipRetry if that is nil,
// because the same call would only be redirected again.
type RedirectError struct {
	Status int
	// From is the URL that was called.
	From string
	// Next is the job's new payload. If it leads to another host or port, it is without Host,
	// without headers whose names say that they are secret, such as Authorization, Cookie and
	// X-Api-Key, and without headers that refer to a secret. Its Hops are one more.
	Next HTTPRequest
}

// Error names both URLs.
func (e *RedirectError) Error() string {
	return fmt.Sprintf("%s answered %s and leads to %s", e.From, statusText(e.Status), e.Next.URL)
}

// requeue is the error that puts the job back as Next, or archives it without PutBackAs.
func (h *HTTPHandler) requeue(moved *RedirectError) error {
	if h.PutBackAs == nil {
		return fmt.Errorf("%w: %w", moved, asynq.SkipRetry)
	}
	payload, err := moved.Next.MarshalJSON()
	if err != nil {
		return fmt.Errorf("%w: %w: %w", moved, err, asynq.SkipRetry)
	}
	return fmt.Errorf("%w: %w", moved, h.PutBackAs(payload))
}

// next returns the call that the response redirects to. It is nil for a final response: no
// redirect, a redirect whose status the call expects, one without a Location, or one that is not
// followed. The error says why it is not.
func (h *HTTPHandler) next(resp *openResponse) (*HTTPRequest, error) {
	location := resp.Header.Get("Location")
	if !redirects(resp.Status) || location == "" || slices.Contains(resp.call.Expect, resp.Status) {
		return nil, nil
	}
	next, err := resp.locate(location)
	if err != nil {
		return nil, fmt.Errorf("it leads to %s: %w", shorten([]byte(resp.secrets.hide(location))), err)
	}
	call := resp.call.redirected(resp.Status, next, h.SecretHeaders)
	switch {
	case resp.call.Redirects == "" || resp.call.Redirects == RedirectsOff:
		err = errors.New("redirects are off")
	case resp.call.Redirects == RedirectsSameHost && !sameHost(resp.URL, call.URL):
		err = errors.New("another host, and redirects are for the same host")
	case reference.MatchString(call.URL) && !sameOrigin(resp.URL, call.URL):
		err = errors.New("another origin, and a secret of the call is in the URL")
	case call.Body != "" && !sameOrigin(resp.URL, call.URL) && !links.Within(call.URL, h.RedirectBodies):
		err = fmt.Errorf("another origin, and the call has a body: want http: {redirect_bodies: [%q]} in the worker's config if that may have it", canonical.HostOf(call.URL))
	case resp.call.Hops >= MaxRedirects:
		err = fmt.Errorf("that would be redirect %d, want at most %d", resp.call.Hops+1, MaxRedirects)
	}
	if err != nil {
		return nil, fmt.Errorf("it leads to %s: %w", call.URL, err)
	}
	return &call, nil
}

// redirects reports whether a status redirects the client. 300 and 304 do not.
func redirects(status int) bool {
	switch status {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther,
		http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return true
	}
	return false
}

// locate returns the absolute URL of a Location in the form of a payload: without a fragment,
// and with references in place of the call's secrets. The upstream wrote the Location, so a
// reference in it is escaped. The error says why Validate would not accept the URL.
func (resp *openResponse) locate(location string) (string, error) {
	u, err := resp.url.Parse(location)
	if err != nil {
		return "", errors.New("not a URL")
	}
	u.Fragment, u.RawFragment = "", ""
	next := resp.secrets.references().hide(strings.ReplaceAll(u.String(), "${", "%24%7B"))
	if err := validateURL(next); err != nil {
		return "", err
	}
	return next, nil
}

// redirected returns the call at another URL: after 301, 302 and 303 a GET without a body, as in
// browsers; after 307 and 308 the same call. A HEAD stays a HEAD. Headers that are meant for the
// first host are dropped.
func (r HTTPRequest) redirected(status int, next string, secretNames []string) HTTPRequest {
	same := status == http.StatusTemporaryRedirect || status == http.StatusPermanentRedirect
	away := !sameOrigin(r.URL, next)
	if !same && r.Method != http.MethodHead {
		r.Method = ""
	}
	r.Headers = maps.Clone(r.Headers)
	maps.DeleteFunc(r.Headers, func(name, value string) bool {
		canonical := http.CanonicalHeaderKey(name)
		private := canonical == "Host" || redact.Named(name, secretNames...) || reference.MatchString(value)
		return !same && strings.HasPrefix(canonical, "Content-") || away && private
	})
	if !same {
		r.Body = ""
	}
	r.URL = next
	r.Hops++
	return r
}

// sameOrigin reports whether what was sent to one URL may be sent to the other. Another port
// can be another server. From http to https both ports must be the defaults.
func sameOrigin(from, to string) bool {
	a, b := schemeAndPort(from), schemeAndPort(to)
	return sameHost(from, to) && (a == b || a == "http:80" && b == "https:443")
}

// sameHost reports whether a permit for one URL's host covers the other URL: limits count hosts
// without ports. A redirect from https to http is to another host.
func sameHost(from, to string) bool {
	before, _, _ := strings.Cut(schemeAndPort(from), ":")
	after, _, _ := strings.Cut(schemeAndPort(to), ":")
	host := canonical.HostOf(from)
	return (before == after || after == "https") && host != "" && host == canonical.HostOf(to)
}

func schemeAndPort(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	usual := map[string]string{"http": "80", "https": "443"}
	return u.Scheme + ":" + cmp.Or(u.Port(), usual[u.Scheme])
}
