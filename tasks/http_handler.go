package tasks

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/duration"
	"github.com/headgate/headgate/scheduler"
)

// HTTPHandler runs http:request tasks. The zero value is ready to use and restrictive: it connects
// only to public addresses, uses no proxy, gives out no secrets and writes no files. It is safe for
// concurrent use. It must not be copied, and its fields must not change, after its first task. A
// process should use one handler, because a handler reuses connections.
//
// The response of the last attempt is the task's result, an HTTPResult. The job ends as follows:
//
//   - An expected status: done.
//   - A malformed payload, or an address that is not allowed: archived.
//   - Any other status: a *StatusError. The job is archived after a 4xx and after a redirect that
//     is not followed, because the same call would get the same response. It is retried after
//     408, 425, 429, a 4xx with a Retry-After, 5xx, and 101, which is never an expected status.
//   - A redirect of a call with RedirectsRequeue: a *RedirectError. The job is put back with the
//     next URL, or archived if PutBackAs is nil.
//   - A body that is longer than the call allows: a *BodyError, archived.
//   - No complete response within the timeout: a *NetworkError, retried.
//   - A missing secret, or no space on disk for the body: retried.
//
// A call can be made more than once, because asynq can run a job more than once.
type HTTPHandler struct {
	// AllowPrivate lists networks that jobs may call although they are not public, such as
	// loopback, link-local and the ranges of RFC 1918. The address of the connection is checked,
	// which is the proxy's address if there is a proxy.
	AllowPrivate []netip.Prefix
	// Secrets are patterns of path.Match for the secrets that payloads may refer to as ${env:NAME}
	// and ${file:/path}, such as "env:API_TOKEN" and "file:/run/secrets/*". Whoever can enqueue
	// jobs can send these secrets to any host.
	Secrets []string
	// SecretHeaders are names of headers whose values are secrets, in addition to names such as
	// X-Api-Key. A * matches any text. A redirect to another host or port drops these headers.
	SecretHeaders []string
	// RedirectBodies lists the hosts that may receive a call's body after a redirect with 307 or
	// 308 from another host or port: "example.com" is one host, "*.example.com" its subdomains. A
	// redirect that would send the body to any other host is not followed.
	RedirectBodies []string
	// SaveDir is the folder below which payloads may save bodies. Empty means that payloads may
	// not save bodies.
	SaveDir string
	// MaxSave is the maximum size of a saved body in bytes. The zero value means DefaultMaxSave.
	MaxSave int64
	// TLS configures https. Nil means Go's defaults.
	TLS *tls.Config
	// Proxy returns the proxy for a request. Nil means no proxy.
	Proxy func(*http.Request) (*url.URL, error)
	// Transport makes the calls instead of the handler's own transport. AllowPrivate, TLS and
	// Proxy then have no effect: the Transport itself must check which addresses jobs may call.
	// It must obey the request's context.
	Transport http.RoundTripper
	// PutBackAs returns the error that puts a job back with another payload. Servers of package
	// scheduler need scheduler.PutBackAs. Nil means that a redirected job with RedirectsRequeue is
	// archived.
	PutBackAs func(payload []byte) error

	once     sync.Once
	shared   http.RoundTripper // set by transport
	resolver *net.Resolver     // nil means the machine's
}

// openResponse is a response whose header has arrived. Its owner closes Body, with read or drop.
type openResponse struct {
	Response
	Header http.Header
	Body   io.ReadCloser
	length int64 // Content-Length, or -1 if it is unknown

	call    HTTPRequest // with references instead of secrets
	secrets secrets
	url     *url.URL  // the called URL with its secrets
	at      time.Time // time at which the header arrived
}

// ProcessTask makes the task's call and keeps the response as its result. If Redis does not
// accept the result within a minute, the job fails, and another attempt makes the call again.
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

// do makes the call and follows redirects, all within the call's timeout. It returns the result of
// the last response, if there was one, and an error unless that response is complete and expected.
func (h *HTTPHandler) do(ctx context.Context, call HTTPRequest) (*HTTPResult, error) {
	ctx, cancel := withTimeout(ctx, cmp.Or(call.Timeout, DefaultTimeout))
	defer cancel()

	start := time.Now()
	for called := false; ; called = true {
		withSecrets, secrets, err := h.reveal(call)
		if err != nil {
			err = notCalled{err}
		}
		var resp *openResponse
		if err == nil {
			resp, err = h.exchange(ctx, call, withSecrets, secrets)
		}
		if err != nil {
			if e, ok := errors.AsType[notCalled](err); ok && called { // an earlier request, which redirected, was made
				err = e.error
			}
			return nil, err
		}
		next, notFollowed := h.next(resp)
		switch {
		case next == nil:
			// A wrong status is reported instead of a truncated body, which the result shows.
			wrong := checkStatus(resp.Response, resp.call.Expect, resp.at)
			result, err := h.read(resp, start, wrong == nil)
			if wrong != nil {
				wrong.Redirect = notFollowed
				err = wrong.ends(resp.Header)
			}
			return result, err
		case call.Redirects == RedirectsRequeue:
			result, _ := h.read(resp, start, false)
			return result, h.requeue(&RedirectError{Status: resp.Status, From: call.URL, Next: *next})
		}
		resp.drop()
		call = *next
	}
}

// withTimeout limits the time of a call. The context's cause names the timeout.
func withTimeout(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no complete response within %s: %w", duration.Exact(timeout), context.DeadlineExceeded))
}

// exchange makes one request and reports the response to the Feedback around the handler. The
// secrets are hidden in its error. An error before the connection is a notCalled.
func (h *HTTPHandler) exchange(ctx context.Context, call, withSecrets HTTPRequest, hidden secrets) (*openResponse, error) {
	req, err := withSecrets.request(ctx)
	if err != nil {
		return nil, notCalled{fmt.Errorf("%w: %w", hidden.hideIn(err), asynq.SkipRetry)}
	}
	start := time.Now()
	// If h.Transport does not call GetConn, connects stays false: an error may then mean that the
	// request was sent.
	connects, connected := false, false
	req = req.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GetConn: func(string) { connects = true }, GotConn: func(httptrace.GotConnInfo) {
		connected = true
		ready := time.Now()
		scheduler.Pace(ctx)
		start = start.Add(time.Since(ready)) // the upstream's latency excludes the wait of Pace
	}}))
	resp, err := h.transport().RoundTrip(req)
	if private, ok := errors.AsType[*AddressError](err); ok {
		return nil, notCalled{fmt.Errorf("%s: %w: %w", call.URL, private, asynq.SkipRetry)}
	}
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		err = &NetworkError{URL: call.URL, Err: hidden.hideIn(err)}
		if connects && !connected {
			err = notCalled{err}
		}
		return nil, err
	}
	at := time.Now()
	if resp.StatusCode == http.StatusSwitchingProtocols {
		// The body is the connection itself, which does not end with the context.
		_ = resp.Body.Close()
		resp.Body = http.NoBody
	}
	answer := Response{call.URL, resp.StatusCode, at.Sub(start), ReadUpstream(resp.StatusCode, resp.Header, at)}
	report(ctx, answer)
	return &openResponse{
		Response: answer, Header: resp.Header, Body: resp.Body, length: resp.ContentLength,
		call: call, secrets: hidden, url: req.URL, at: at,
	}, nil
}

// request returns the call for net/http, in which Host is a field and not a header.
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

// transport returns the handler's transport. It is not wrapped in an http.Client, which would
// follow redirects and show URLs with their secrets in errors.
//
// Its settings suit a worker, which calls few hosts from many goroutines: by default Go keeps 2 idle
// connections to a host and reads up to 10 MB of headers. It ignores the proxy of the environment,
// because control would check the proxy's address instead of the upstream's. It unpacks gzip, so
// limits on bodies apply to unpacked bytes. The context has the timeout.
func (h *HTTPHandler) transport() http.RoundTripper {
	h.once.Do(func() {
		if h.shared = h.Transport; h.shared != nil {
			return
		}
		dialer := &net.Dialer{Timeout: 30 * time.Second, Control: h.control, Resolver: h.resolver}
		h.shared = &http.Transport{
			DialContext:            dialer.DialContext,
			Proxy:                  h.Proxy,
			TLSClientConfig:        h.TLS.Clone(),
			TLSHandshakeTimeout:    10 * time.Second,
			ForceAttemptHTTP2:      true, // DialContext and TLSClientConfig turn it off
			ExpectContinueTimeout:  time.Second,
			IdleConnTimeout:        90 * time.Second,
			MaxIdleConns:           512,
			MaxIdleConnsPerHost:    64,
			MaxResponseHeaderBytes: 256 << 10,
		}
	})
	return h.shared
}
