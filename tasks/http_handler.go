package tasks

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
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

// HTTPHandler runs http:request tasks. The zero value is restrictive: it connects only to public
// addresses, uses no proxy, gives out no secrets and writes no files. An HTTPHandler is safe for
// concurrent use and reuses connections. After its first task it must not be copied, and its fields
// must not change.
//
// The response of the last attempt is the task's result, an HTTPResult. The job ends as follows:
//
//   - An expected status: done.
//   - A redirect that is followed, see HTTPRequest.Redirects: put back with the next URL.
//   - Any other status: a *StatusError. A redirect that is not followed, and most 4xx, archive the
//     job, because the same call would get the same response. The 4xx that do not archive the job
//     are 408, 418, 420, 425, 429, 430, any 4xx with a Retry-After, and a 403 with an exhausted
//     quota. After these and after all other statuses the job is retried, but not before the time
//     that the response names.
//   - No complete response within the timeout: a *NetworkError, retried.
//   - A missing secret, or no space on disk for the body: retried.
//   - A malformed payload, or a body too long to be saved: archived.
//   - An address or a secret that is not allowed, or a body to save without a SaveDir: put back for
//     another worker. After the server's [scheduler.WithUnknownFor], an address archives the job, and
//     the others are failures.
//
// A call can be made more than once, because asynq can run a job more than once.
type HTTPHandler struct {
	// AllowPrivate lists networks that jobs may call although they are not public, such as
	// loopback. With a Proxy, the handler checks the address of the proxy only, not that of the
	// upstream.
	AllowPrivate []netip.Prefix
	// Secrets are patterns of path.Match for the secrets that payloads may refer to, such as
	// "env:API_TOKEN" and "file:/run/secrets/*". Anybody who can enqueue jobs can send these
	// secrets to any host.
	Secrets []string
	// SecretHeaders are names of headers whose values are secrets, in addition to names such as
	// X-Api-Key. A * matches any text. A redirect to another host or port drops these headers.
	SecretHeaders []string
	// RedirectBodies are the hosts that may get a call's body if another host or port redirects the
	// call to them with 307 or 308. Examples are "example.com", and "*.example.com" for its
	// subdomains.
	RedirectBodies []string
	// SaveDir is the folder below which payloads may save bodies. If it is empty, a call with Save
	// fails.
	SaveDir string
	// MaxSave is the maximum size of a saved body in bytes. The zero value means DefaultMaxSave.
	MaxSave int64
	// TLS configures https. Nil means Go's defaults.
	TLS *tls.Config
	// Proxy returns the proxy for a request, or nil for a direct connection. A nil Proxy means no
	// proxy for any request.
	Proxy func(*http.Request) (*url.URL, error)
	// Transport makes the calls instead of the handler's own transport. With a Transport,
	// AllowPrivate, TLS and Proxy have no effect. The Transport must obey the request's context.
	Transport http.RoundTripper
	// PutBackAs returns the error that puts a job back with another payload, for example
	// scheduler.PutBackAs. Nil means that a redirected job is archived.
	PutBackAs func(payload []byte) error

	once   sync.Once
	shared http.RoundTripper // the transport of all calls; nil before the first call
}

// openResponse is a response whose body has not been read. The caller of exchange must close Body.
type openResponse struct {
	*http.Response
	status  *StatusError // describes the response, even if its status is expected
	call    HTTPRequest  // with references instead of secrets
	secrets secrets
}

// Check returns the error with which ProcessTask would refuse the task before its call, because of
// its payload or because of what the handler's fields allow. It does no I/O, so a server's rules can
// call it before the job takes permits.
func (h *HTTPHandler) Check(task *asynq.Task) error {
	call, err := parse[HTTPRequest](task.Payload())
	if err != nil {
		return presentable(malformed(err))
	}
	return presentable(cmp.Or(h.checkAddress(call.URL), h.checkSave(call), h.checkSecrets(call)))
}

// ProcessTask makes the task's call and keeps the response as its result.
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

// do makes the call. If no response arrives, the result is nil. If the status of the response is
// not expected, do returns a result and an error.
func (h *HTTPHandler) do(ctx context.Context, call HTTPRequest) (*HTTPResult, error) {
	ctx, cancel := withTimeout(ctx, cmp.Or(call.Timeout, DefaultTimeout))
	defer cancel()
	start := time.Now()
	resp, err := h.exchange(ctx, call)
	if err != nil {
		return nil, err
	}
	next, notFollowed := h.next(resp)
	resp.status.Redirect = notFollowed
	if resp.status.verdict != VerdictByStatus {
		next, resp.status.Redirect = nil, nil
	}
	unexpected := resp.status.unexpected(call.Expect)
	result, err := h.read(resp, start, unexpected == nil)
	switch {
	case next != nil:
		again := asynq.SkipRetry
		if h.PutBackAs != nil {
			payload, _ := next.MarshalJSON() // a valid call has no error
			again = h.PutBackAs(payload)
		}
		err = fmt.Errorf("%s answered %s and leads to %s: %w", resp.call.URL, statusText(resp.StatusCode), next.URL, again)
	case unexpected != nil: // replaces an error of read: the result shows that the body is incomplete
		err = unexpected
	}
	return result, err
}

func withTimeout(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no complete response within %s: %w", duration.Exact(timeout), context.DeadlineExceeded))
}

// exchange makes one request. It reports the latency and, if the status is below 400, an exhausted
// quota to the limits; Feedback reports statuses from 400 on. The text of the error has no secrets.
func (h *HTTPHandler) exchange(ctx context.Context, call HTTPRequest) (*openResponse, error) {
	withSecrets, hidden, err := h.resolveSecrets(call)
	if err != nil {
		return nil, notCalled(err)
	}
	req, err := withSecrets.request(ctx)
	if err != nil {
		return nil, notCalled(fmt.Errorf("%w: %w", hidden.hideIn(err), asynq.SkipRetry))
	}
	start := time.Now()
	connecting, connected := false, false // a Transport that sets neither counts as connected
	req = req.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { connecting = true },
		GotConn: func(httptrace.GotConnInfo) { connected = true },
	}))
	resp, err := h.transport().RoundTrip(req)
	if private, ok := errors.AsType[*AddressError](err); ok {
		return nil, unable(fmt.Errorf("%s: %w: %w", call.URL, private, asynq.SkipRetry))
	}
	if err != nil {
		err = &NetworkError{URL: call.URL, Err: hidden.hideIn(cmp.Or(context.Cause(ctx), err))}
		if connecting && !connected {
			err = notCalled(err)
		}
		return nil, err
	}
	scheduler.ReportLatency(ctx, time.Since(start))
	if resp.StatusCode == http.StatusSwitchingProtocols {
		// After 101 the body is the connection itself, which does not end with the context.
		_ = resp.Body.Close()
		resp.Body = http.NoBody
	}
	resp.Request = req
	status := newStatusError(resp, call.URL)
	status.judge(ctx, resp)
	status.report(ctx)
	return &openResponse{resp, status, call, hidden}, nil
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

// Times of a connection to an upstream, as in http.DefaultTransport.
const (
	dialTimeout   = 30 * time.Second
	tlsTimeout    = 10 * time.Second
	expectTimeout = time.Second
	idleTimeout   = 90 * time.Second
)

// transport returns the transport of all calls. An http.Client would follow redirects, and show the
// secrets of URLs in errors. The environment's proxy settings have no effect, because control would
// check the proxy's address instead of the upstream's.
func (h *HTTPHandler) transport() http.RoundTripper {
	h.once.Do(func() {
		if h.shared = h.Transport; h.shared != nil {
			return
		}
		dialer := &net.Dialer{Timeout: dialTimeout, Control: h.control}
		h.shared = &http.Transport{
			DialContext:            dialer.DialContext,
			Proxy:                  h.Proxy,
			TLSClientConfig:        h.TLS.Clone(),
			TLSHandshakeTimeout:    tlsTimeout,
			ForceAttemptHTTP2:      true, // DialContext and TLSClientConfig would turn HTTP/2 off
			ExpectContinueTimeout:  expectTimeout,
			IdleConnTimeout:        idleTimeout,
			MaxIdleConns:           512,
			MaxIdleConnsPerHost:    64, // a worker calls few hosts from many goroutines
			MaxResponseHeaderBytes: 256 << 10,
		}
	})
	return h.shared
}
