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

	"github.com/headgate/headgate/tasks/frontier"
)

// Redirects is what becomes of an answer that redirects. One whose status is
// among those that the call expects is never followed.
type Redirects string

// The values of HTTPRequest.Redirects.
const (
	// RedirectsOff makes a redirect an answer as any other. It is the default,
	// because it alone keeps what a limit promises without help: one permit, one
	// request, to the host that the permit is for.
	RedirectsOff Redirects = "off"
	// RedirectsSameHost follows up to MaxRedirects redirects within the host,
	// at once: one permit then pays for up to 1 + MaxRedirects requests. One to
	// another host, or from https to http, is an answer as any other.
	RedirectsSameHost Redirects = "same-host"
	// RedirectsRequeue ends the run at every redirect, and the job goes on at the
	// next URL under the permits of that: see HTTPHandler.PutBackAs.
	RedirectsRequeue Redirects = "requeue"
)

// MaxRedirects is how many redirects one job follows, in one run or in several.
// It is what RFC 9309 asks of crawlers at least; what needs more is a loop.
const MaxRedirects = 5

// RedirectError ends the run of a job that asked for RedirectsRequeue: what is
// left to do is Next. It comes wrapped with the error of HTTPHandler.PutBackAs,
// or with asynq.SkipRetry where that is nil, because the same call would only be
// redirected again.
type RedirectError struct {
	Status int
	// From is the URL that answered.
	From string
	// Next is the job's payload from now on. Headers that were not for
	// another host or port are gone from it: Authorization, Cookie, Host and those with
	// a secret. Its Hops are one more.
	Next HTTPRequest
}

// Error says who leads where.
func (e *RedirectError) Error() string {
	return fmt.Sprintf("%s answered %s and leads to %s", e.From, statusText(e.Status), e.Next.URL)
}

// goOn is the error that has the job go on as Next, or, without PutBackAs, be
// archived.
func (h *HTTPHandler) goOn(moved *RedirectError) error {
	if h.PutBackAs == nil {
		return fmt.Errorf("%w: %w", moved, asynq.SkipRetry)
	}
	payload, err := moved.Next.MarshalJSON()
	if err != nil {
		return fmt.Errorf("%w: %w: %w", moved, err, asynq.SkipRetry)
	}
	return fmt.Errorf("%w: %w", moved, h.PutBackAs(payload))
}

// next is the call that the answer redirects to, and nil if it is final: no redirect,
// one whose status the call expects, one without a Location, or one that is not
// followed. The error says why it is not.
func (a *answer) next() (*HTTPRequest, error) {
	location := a.resp.Header.Get("Location")
	if !redirects(a.Status) || location == "" || slices.Contains(a.call.Expect, a.Status) {
		return nil, nil
	}
	next, err := a.locate(location)
	if err != nil {
		return nil, fmt.Errorf("it leads to %s: %w", shorten([]byte(a.secrets.hide(location))), err)
	}
	call := a.call.redirected(a.Status, next)
	within := sameHost(a.URL, call.URL)
	switch {
	case a.call.Redirects == "" || a.call.Redirects == RedirectsOff:
		err = errors.New("redirects are off")
	case a.call.Redirects == RedirectsSameHost && !within:
		err = errors.New("another host, and redirects are for the same host")
	case reference.MatchString(call.URL) && !sameOrigin(a.URL, call.URL):
		err = errors.New("another origin, and a secret of the call is in the URL")
	case a.call.Hops >= MaxRedirects:
		err = fmt.Errorf("that would be redirect %d, want at most %d", a.call.Hops+1, MaxRedirects)
	}
	if err != nil {
		return nil, fmt.Errorf("it leads to %s: %w", call.URL, err)
	}
	return &call, nil
}

// redirects reports whether a status sends the client elsewhere. 300 and 304 do not,
// although they are in the same hundred.
func redirects(status int) bool {
	switch status {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther,
		http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return true
	}
	return false
}

// locate is the absolute URL of a Location, as a payload can have it: without a
// fragment. What looks like the reference to a secret in it is not one: the other
// side wrote it. The secrets of the URL that was called become references again. It
// is an error if it is no URL that Validate would take.
func (a *answer) locate(location string) (string, error) {
	u, err := a.url.Parse(location)
	if err != nil {
		return "", errors.New("not a URL")
	}
	u.Fragment, u.RawFragment = "", ""
	next := a.secrets.references().hide(strings.ReplaceAll(u.String(), "${", "%24%7B"))
	if err := validateURL(next); err != nil {
		return "", err
	}
	return next, nil
}

// redirected is the call as it goes on at another URL: after 301, 302 and 303
// as a GET without a body, as browsers do; after 307 and 308 as it is. A HEAD stays
// one. The call that it is made from, and its headers, do not change.
func (r HTTPRequest) redirected(status int, next string) HTTPRequest {
	keeps := status == http.StatusTemporaryRedirect || status == http.StatusPermanentRedirect
	away := !sameOrigin(r.URL, next)
	if !keeps && r.Method != http.MethodHead {
		r.Method = ""
	}
	r.Headers = maps.Clone(r.Headers)
	maps.DeleteFunc(r.Headers, func(name, value string) bool {
		name = http.CanonicalHeaderKey(name)
		return !keeps && strings.HasPrefix(name, "Content-") || away && private(name, value)
	})
	if !keeps {
		r.Body = ""
	}
	r.URL = next
	r.Hops++
	return r
}

// private reports whether a header is for the host alone that it was given for: what
// says who calls, and all that has a secret in it. Others are taken along.
func private(name, value string) bool {
	switch name {
	case "Authorization", "Cookie", "Host", "Proxy-Authorization":
		return true
	}
	return reference.MatchString(value)
}

// sameOrigin reports whether what was sent to one URL may be sent to the other: another
// port can be another's server. From http to https both ports are the schemes' own.
func sameOrigin(from, to string) bool {
	a, b := schemeAndPort(from), schemeAndPort(to)
	return sameHost(from, to) && (a == b || a == "http:80" && b == "https:443")
}

// sameHost reports whether a permit for one URL's host is one for the other's: limits
// count by hosts without ports.
func sameHost(from, to string) bool {
	down := strings.HasPrefix(schemeAndPort(from), "https:") && !strings.HasPrefix(schemeAndPort(to), "https:")
	host := frontier.Host(from)
	return !down && host != "" && host == frontier.Host(to)
}

func schemeAndPort(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	usual := map[string]string{"http": "80", "https": "443"}
	return u.Scheme + ":" + cmp.Or(u.Port(), usual[u.Scheme])
}
