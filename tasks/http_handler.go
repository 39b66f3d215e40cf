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

// HTTPHandler runs http:request tasks. The zero value is ready to use and restrictive: it
// connects only to public addresses, uses no proxy, gives out no secrets and writes no files.
// The worker's program allows more; payloads cannot. An HTTPHandler must not be copied, nor its
// fields changed, after its first task. It is safe for concurrent use. One handler should
// make all calls of a process, because it reuses connections.
//
// Every response is kept as the task's result, an HTTPResult. The result of the last attempt
// stays. The job ends as follows:
//
//   - The status is expected: done.
//   - A malformed payload, or an address that is not allowed: archived, with the reason.
//   - Another status, 101 always: a *StatusError. A 4xx is archived, because the same call
//     would get the same response. But 408, 425, 429 and any response that says when to
//     come back are retried, as are 5xx and all others. A redirect that is not followed is
//     archived too.
//   - A redirect, if the call asks for RedirectsRequeue: a *RedirectError. The job is put
//     back with the next URL, or archived without PutBackAs.
//   - A body that is longer than the call allows: a *BodyError, archived.
//   - No response, a broken one, or none in time: a *NetworkError, retried.
//   - A missing secret, or no space for the body on disk: retried.
//
// A call can be made more than once, as any asynq job can run more than once.
type HTTPHandler struct {
	// AllowPrivate lists networks that may be called although they are not public, such as
	// loopback, link-local and the ranges of RFC 1918. The address of the connection counts,
	// whatever the host's name. Through a proxy that is the proxy's address.
	AllowPrivate []netip.Prefix
	// Secrets lists what payloads may refer to as ${env:NAME} and
	// ${file:/path}, in the URL's path and query and in the values of headers:
	// "env:API_TOKEN", "file:/run/secrets/*", in the syntax of path.Match. Whoever can
	// enqueue jobs can send these secrets to any host.
	Secrets []string
	// SecretHeaders are names of further headers whose values are secrets, besides names such as
	// X-Api-Key. A * stands for any text. A redirect to another host or port drops these headers.
	SecretHeaders []string
	// RedirectBodies lists the hosts that may get a call's body if a redirect with 307
	// or 308 leads to them from another host or port: "example.com" is that host,
	// "*.example.com" all below it. A redirect that would send a body elsewhere is not
	// followed.
	RedirectBodies []string
	// SaveDir is the folder below which payloads may save bodies. Empty means that they may
	// not.
	SaveDir string
	// MaxSave is how many bytes a saved body may have. The zero value means
	// DefaultMaxSave.
	MaxSave int64
	// TLS is for https: own roots, a client certificate, a minimum version.
	// Nil means Go's defaults.
	TLS *tls.Config
	// Proxy chooses a proxy for a request. Nil means none; http.ProxyFromEnvironment uses the
	// environment's.
	Proxy func(*http.Request) (*url.URL, error)
	// Transport makes the calls instead of the handler's own transport, to which
	// AllowPrivate, TLS and Proxy belong. It must obey the request's context.
	Transport http.RoundTripper
	// PutBackAs makes the error that puts a job back with another payload:
	// scheduler.PutBackAs if package scheduler runs the job. Nil means that a redirected job
	// with RedirectsRequeue is archived.
	PutBackAs func(payload []byte) error

	once     sync.Once
	shared   http.RoundTripper // see transport
	resolver *net.Resolver     // nil means the machine's
}

// response is a response whose header has arrived. Its owner closes Body, with read or drop.
type openResponse struct {
	Response
	Header http.Header
	Body   io.ReadCloser
	length int64 // of the body, -1 if the server does not say

	call    HTTPRequest // as the payload has it
	secrets secrets
	url     *url.URL  // that was called, with its secrets
	at      time.Time // when the header arrived
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

// do makes the call and follows redirects. It returns a result whenever there was a response,
// and an error unless that was the whole of an expected one. The timeout covers all of it; an
// earlier deadline of asynq's counts as well.
func (h *HTTPHandler) do(ctx context.Context, call HTTPRequest) (*HTTPResult, error) {
	ctx, cancel := withTimeout(ctx, cmp.Or(call.Timeout, DefaultTimeout))
	defer cancel()

	start := time.Now()
	for called := false; ; called = true {
		open, hidden, err := h.reveal(call)
		if err != nil {
			err = notCalled{err}
		}
		var resp *openResponse
		if err == nil {
			resp, err = h.exchange(ctx, call, open, hidden)
		}
		if err != nil {
			if e, ok := errors.AsType[notCalled](err); ok && called { // the call that redirected here was made
				err = e.error
			}
			return nil, err
		}
		next, notFollowed := h.next(resp)
		switch {
		case next == nil:
			// A wrong status matters more than a body that breaks off, which the result shows.
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
	return context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no whole answer within %s: %w", duration.Exact(timeout), context.DeadlineExceeded))
}

// exchange makes one request and reports the response to the Feedback around the handler. open
// is the call with its secrets, which are hidden in the error. An error before there was a
// connection is a notCalled.
func (h *HTTPHandler) exchange(ctx context.Context, call, open HTTPRequest, hidden secrets) (*openResponse, error) {
	req, err := open.request(ctx)
	if err != nil {
		return nil, notCalled{fmt.Errorf("%w: %w", hidden.hideIn(err), asynq.SkipRetry)}
	}
	start := time.Now()
	// A transport of the program may report no connections: then the request may have left.
	connects, connected := false, false
	req = req.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GetConn: func(string) { connects = true }, GotConn: func(httptrace.GotConnInfo) {
		connected = true
		ready := time.Now()
		scheduler.Pace(ctx)
		start = start.Add(time.Since(ready)) // the upstream's latency does not include that wait
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
		// The body is the connection itself, which no context ends.
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

// request is the call for net/http, which has Host as a field and not as a header.
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

// transport returns the handler's one transport. It is not wrapped in an http.Client, which
// would follow redirects and show URLs with their secrets in errors.
//
// Its settings are for a worker, which calls few hosts from many goroutines: by default Go
// keeps 2 idle connections to a host and reads up to 10 MB of headers. The environment's proxy
// is ignored, because it would hide from the guard where calls go. Go unpacks gzip
// here, so every limit on bodies applies to the unpacked bytes. The timeout of a call is in its
// context.
func (h *HTTPHandler) transport() http.RoundTripper {
	h.once.Do(func() {
		if h.shared = h.Transport; h.shared != nil {
			return
		}
		// control sees each address that a name resolves to.
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
