package tasks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/duration"
	"github.com/headgate/headgate/internal/redact"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/tasks/frontier"
	"github.com/headgate/headgate/tasks/internal/links"
)

// ProcessTask makes the task's call and keeps the answer as its result. Where Redis does
// not take that for a minute the job fails, and the call is made again by another attempt.
func (h *HTTPHandler) ProcessTask(ctx context.Context, task *asynq.Task) error {
	call, err := parse[HTTPRequest](task.Payload())
	if err != nil {
		return malformed(err)
	}
	result, err := h.do(ctx, call)
	if result != nil {
		err = keepResult(ctx, task, result, err)
	}
	return presentable(err)
}

// do makes the call. It returns a result whenever there was an answer, and an
// error unless that was the whole of an expected one. The timeout is for all of
// it, redirects included; a deadline of asynq's that is sooner counts as well.
func (h *HTTPHandler) do(ctx context.Context, call HTTPRequest) (*HTTPResult, error) {
	ctx, cancel := within(ctx, cmp.Or(call.Timeout, DefaultTimeout))
	defer cancel()

	start := time.Now()
	for called := false; ; called = true {
		a, err := h.attempt(ctx, call)
		if err != nil {
			if e, ok := errors.AsType[notCalled](err); ok && called { // the call that redirected to here was made
				err = e.error
			}
			return nil, err
		}
		next, refused := h.next(a)
		switch {
		case next == nil:
			// A wrong status counts for more than a body that breaks off: that is in the result.
			wrong := checkStatus(a.Answer, a.call.Expect, a.at)
			result, err := h.read(a, start, wrong == nil)
			if wrong != nil {
				wrong.Redirect = refused
				err = wrong.ends(a.resp.Header)
			}
			return result, err
		case call.Redirects == RedirectsRequeue:
			result, _ := h.read(a, start, false)
			moved := &RedirectError{Status: a.Status, From: call.URL, Next: *next}
			return result, h.goOn(moved)
		}
		a.drop()
		call = *next
	}
}

// attempt makes the call's next request, with its secrets.
func (h *HTTPHandler) attempt(ctx context.Context, call HTTPRequest) (*answer, error) {
	open, hidden, err := h.reveal(call)
	if err != nil {
		return nil, notCalled{err}
	}
	return h.exchange(ctx, call, open, hidden)
}

// within bounds the time of a call, and says so where it is over.
func within(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no whole answer within %s: %w", duration.Exact(timeout), context.DeadlineExceeded))
}

// exchange makes one request, and tells Feedback of the answer: open is the call with its
// secrets, which are hidden in the error. An error before there was a connection is a notCalled.
func (h *HTTPHandler) exchange(ctx context.Context, call, open HTTPRequest, hidden secrets) (*answer, error) {
	req, err := open.request(ctx)
	if err != nil {
		return nil, notCalled{fmt.Errorf("%w: %w", hidden.hideIn(err), asynq.SkipRetry)}
	}
	start := time.Now()
	// A transport of the program's own may say nothing of connections: then the request may have left.
	connects, connected := false, false
	req = req.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GetConn: func(string) { connects = true }, GotConn: func(httptrace.GotConnInfo) {
		connected = true
		ready := time.Now()
		scheduler.Pace(ctx)
		start = start.Add(time.Since(ready)) // the upstream's latency does not include that wait
	}}))
	resp, err := h.transport().RoundTrip(req)
	if refused, ok := errors.AsType[*AddressError](err); ok { // which cannot get better
		return nil, notCalled{fmt.Errorf("%s: %w: %w", call.URL, refused, asynq.SkipRetry)}
	}
	if err != nil {
		err = &NetworkError{URL: call.URL, Err: hidden.hideIn(err)}
		if connects && !connected {
			err = notCalled{err}
		}
		return nil, err
	}
	at := time.Now()
	if resp.StatusCode == http.StatusSwitchingProtocols {
		// Its body is the connection itself, to whatever protocol, and no context ends it.
		_ = resp.Body.Close()
		resp.Body = http.NoBody
	}
	resp.Body = endsWith(ctx, resp.Body)
	heard := Answer{call.URL, resp.StatusCode, at.Sub(start), ReadUpstream(resp.StatusCode, resp.Header, at)}
	tell(ctx, heard)
	return &answer{Answer: heard, call: call, secrets: hidden, url: req.URL, resp: resp, at: at}, nil
}

// request is the call as net/http wants it. Host is no header to it but a field of
// the request.
func (r HTTPRequest) request(ctx context.Context) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, r.Method, r.URL, strings.NewReader(r.Body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "headgate")
	for name, value := range r.Headers {
		if http.CanonicalHeaderKey(name) == "Host" {
			req.Host = value
			continue
		}
		req.Header.Set(name, value)
	}
	return req, nil
}

// RedirectError ends the run of a job that asked for RedirectsRequeue: what is
// left to do is Next. It comes wrapped with the error of HTTPHandler.PutBackAs,
// or with asynq.SkipRetry where that is nil, because the same call would only be
// redirected again.
type RedirectError struct {
	Status int
	// From is the URL that answered.
	From string
	// Next is the job's payload from now on. At another host or port it is without Host,
	// without headers whose names say that they are secret, such as Authorization, Cookie and
	// X-Api-Key, and without those that refer to a secret. Its Hops are one more.
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
func (h *HTTPHandler) next(a *answer) (*HTTPRequest, error) {
	location := a.resp.Header.Get("Location")
	if !redirects(a.Status) || location == "" || slices.Contains(a.call.Expect, a.Status) {
		return nil, nil
	}
	next, err := a.locate(location)
	if err != nil {
		return nil, fmt.Errorf("it leads to %s: %w", shorten([]byte(a.secrets.hide(location))), err)
	}
	call := a.call.redirected(a.Status, next, h.SecretNames)
	within := sameHost(a.URL, call.URL)
	switch {
	case a.call.Redirects == "" || a.call.Redirects == RedirectsOff:
		err = errors.New("redirects are off")
	case a.call.Redirects == RedirectsSameHost && !within:
		err = errors.New("another host, and redirects are for the same host")
	case reference.MatchString(call.URL) && !sameOrigin(a.URL, call.URL):
		err = errors.New("another origin, and a secret of the call is in the URL")
	case call.Body != "" && !sameOrigin(a.URL, call.URL) && !links.Within(call.URL, h.RedirectBodies):
		host := frontier.Host(call.URL)
		err = fmt.Errorf("another origin, and the call has a body: want http: {redirect_bodies: [%q]} in the worker's config if that may have it", host)
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
// one. Headers that are for the host alone that they were given for stay behind. The call
// that it is made from, and its headers, do not change.
func (r HTTPRequest) redirected(status int, next string, secretNames []string) HTTPRequest {
	keeps := status == http.StatusTemporaryRedirect || status == http.StatusPermanentRedirect
	away := !sameOrigin(r.URL, next)
	if !keeps && r.Method != http.MethodHead {
		r.Method = ""
	}
	r.Headers = maps.Clone(r.Headers)
	maps.DeleteFunc(r.Headers, func(name, value string) bool {
		canonical := http.CanonicalHeaderKey(name)
		private := canonical == "Host" || redact.Named(name, secretNames...) || reference.MatchString(value)
		return !keeps && strings.HasPrefix(canonical, "Content-") || away && private
	})
	if !keeps {
		r.Body = ""
	}
	r.URL = next
	r.Hops++
	return r
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
	before, _, _ := strings.Cut(schemeAndPort(from), ":")
	after, _, _ := strings.Cut(schemeAndPort(to), ":")
	host := frontier.Host(from)
	return (before == after || after == "https") && host != "" && host == frontier.Host(to)
}

func schemeAndPort(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	usual := map[string]string{"http": "80", "https": "443"}
	return u.Scheme + ":" + cmp.Or(u.Port(), usual[u.Scheme])
}
