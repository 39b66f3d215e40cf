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

	"github.com/headgate/headgate/internal/canonical"
	"github.com/headgate/headgate/internal/redact"
	"github.com/headgate/headgate/internal/strictjson"
	"github.com/headgate/headgate/tasks/internal/links"
)

// next returns the call to which the response redirects, or why the handler does not follow the
// redirect. If the response is no redirect, has no Location, or has an expected status, next returns
// neither.
func (h *HTTPHandler) next(resp *openResponse) (*HTTPRequest, error) {
	location := resp.Header.Get("Location")
	if !redirects(resp.StatusCode) || location == "" || slices.Contains(resp.call.Expect, resp.StatusCode) {
		return nil, nil
	}
	to, err := resp.locate(location)
	if err != nil {
		return nil, fmt.Errorf("the redirect to %s is not followed: %w", strictjson.Shorten([]byte(resp.secrets.hide(location))), err)
	}
	call := resp.call.redirected(resp.StatusCode, to, h.SecretHeaders)
	otherOrigin := !sameOrigin(resp.call.URL, call.URL)
	switch {
	case !resp.call.Redirects:
		err = errors.New("redirects are off")
	case otherOrigin && reference.MatchString(call.URL):
		err = errors.New("it is another origin, and the URL has a secret")
	case otherOrigin && call.Body != "" && !links.Within(call.URL, h.RedirectBodies):
		err = fmt.Errorf("it is another origin, and the call has a body: want %q in http.redirect_bodies of the worker's config if that host may have the body", canonical.HostOf(call.URL))
	case resp.call.Hops >= MaxRedirects:
		err = fmt.Errorf("it would be redirect %d: want at most %d", resp.call.Hops+1, MaxRedirects)
	}
	if err != nil {
		return nil, fmt.Errorf("the redirect to %s is not followed: %w", call.URL, err)
	}
	return &call, nil
}

// redirects reports whether a status redirects the client. 300 and 304 do not.
func redirects(status int) bool { return slices.Contains([]int{301, 302, 303, 307, 308}, status) }

// target returns the canonical URL to which a redirect leads.
func (resp *openResponse) target() (string, error) {
	location := resp.Header.Get("Location")
	if location == "" {
		return "", errors.New("the redirect has no Location")
	}
	url, err := links.Canonical(resp.Request.URL.String(), location)
	if err != nil {
		return "", fmt.Errorf("the redirect has no valid Location: %w", err)
	}
	return url, nil
}

// locate returns the URL of a Location header for a payload: absolute, without a fragment, and with
// references in place of the call's secrets. It escapes references that the server wrote, so that
// the server cannot read secrets.
func (resp *openResponse) locate(location string) (string, error) {
	u, err := resp.Request.URL.Parse(location)
	if err != nil {
		return "", errors.New("not a URL")
	}
	u.Fragment, u.RawFragment = "", ""
	next := resp.secrets.hide(strings.ReplaceAll(u.String(), "${", "%24%7B"))
	if err := validateURL(next); err != nil {
		return "", err
	}
	return next, nil
}

// redirected returns the call to the next URL. After 307 and 308 it has the same method and body.
// After 301, 302 and 303 it is a GET or HEAD without a body and headers such as Content-Type. A call
// to another origin has no Host header, no headers with secret names such as Authorization, and no
// headers that refer to a secret.
func (r HTTPRequest) redirected(status int, next string, secretNames []string) HTTPRequest {
	keepBody := status == http.StatusTemporaryRedirect || status == http.StatusPermanentRedirect
	otherOrigin := !sameOrigin(r.URL, next)
	if !keepBody && r.Method != http.MethodHead {
		r.Method = ""
	}
	r.Headers = maps.Clone(r.Headers)
	maps.DeleteFunc(r.Headers, func(name, value string) bool {
		canonical := http.CanonicalHeaderKey(name)
		private := canonical == "Host" || redact.Named(name, secretNames...) || reference.MatchString(value)
		return !keepBody && strings.HasPrefix(canonical, "Content-") || otherOrigin && private
	})
	if !keepBody {
		r.Body = ""
	}
	r.URL = next
	r.Hops++
	return r
}

// sameOrigin reports whether two URLs have the same host, scheme and port, so that the secrets and
// the body of one may go to the other. A change from http to https on their usual ports is allowed.
func sameOrigin(from, to string) bool {
	parts := func(text string) (host, port string) {
		u, err := url.Parse(text)
		if err != nil {
			return "", ""
		}
		usual := map[string]string{"http": "80", "https": "443"}
		return canonical.HostOf(text), u.Scheme + ":" + cmp.Or(u.Port(), usual[u.Scheme])
	}
	host, port := parts(from)
	toHost, toPort := parts(to)
	return host != "" && host == toHost && (port == toPort || port == "http:80" && toPort == "https:443")
}
