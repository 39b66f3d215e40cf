package tasks

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/hibiken/asynq"
)

// HTTPHandler runs http:request tasks. Its zero value is ready to use.
//
// Every answer is kept as the task's result, an HTTPResult, whatever its
// status: that of the last attempt stays. What becomes of the job:
//
//   - The status is expected: done.
//   - A malformed payload: archived at once, with the reason.
//   - Another status: a *StatusError. A 4xx is archived at once, because the
//     same call would only be refused again; but 408, 425 and 429, and any
//     answer with a Retry-After, are retried, as are 5xx and all others.
//   - No answer, a broken one, or none in time: retried.
//
// A call can be made more than once, as any asynq job can run more than once.
type HTTPHandler struct {
	// Client makes the calls. The zero value means a client that all handlers
	// share, which speaks http and https alone and keeps connections open.
	Client *http.Client
}

var sharedClient = &http.Client{Transport: newTransport()}

// newTransport is Go's own transport with limits for a worker, which calls few
// hosts from many goroutines: Go keeps 2 idle connections to a host, so that
// most calls would open a new one, and reads up to 10 MB of headers.
func newTransport() *http.Transport {
	t := &http.Transport{}
	if std, ok := http.DefaultTransport.(*http.Transport); ok {
		t = std.Clone()
	}
	t.MaxIdleConns = 512
	t.MaxIdleConnsPerHost = 64
	t.MaxResponseHeaderBytes = 256 << 10
	return t
}

// ProcessTask makes the task's call and keeps the answer as its result.
func (h *HTTPHandler) ProcessTask(ctx context.Context, task *asynq.Task) error {
	call, err := parseHTTPRequest(task.Payload())
	if err != nil {
		return fmt.Errorf("malformed payload: %w: %w", err, asynq.SkipRetry)
	}
	result, err := h.do(ctx, call)
	if result == nil {
		return err
	}
	if lost := result.keep(task); lost != nil {
		if err == nil {
			return lost
		}
		return fmt.Errorf("%w (and %w)", err, lost)
	}
	return err
}

// do makes the call. It returns a result whenever there was an answer, and an
// error unless that was the whole of an expected one.
func (h *HTTPHandler) do(ctx context.Context, call HTTPRequest) (*HTTPResult, error) {
	timeout := call.Timeout
	if timeout == 0 {
		timeout = DefaultTimeout
	}
	late := fmt.Errorf("no whole answer within %s: %w", timeout, context.DeadlineExceeded)
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, late)
	defer cancel()

	req, err := call.request(ctx)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	resp, err := h.client(call.Expect).Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	result, broken := readResult(resp, start)
	if wrong := checkStatus(resp, call.Expect); wrong != nil {
		if wrong.permanent() {
			return result, fmt.Errorf("%w: %w", wrong, asynq.SkipRetry)
		}
		return result, wrong
	}
	if broken != nil {
		return result, fmt.Errorf("%s answered %s, but its body broke off: %w", req.URL.Redacted(), resp.Status, broken)
	}
	return result, nil
}

// request is the call as net/http wants it.
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

// client is the one that makes the call. Where a redirect is what the call
// expects it is a copy that does not follow it.
func (h *HTTPHandler) client(expect []int) *http.Client {
	client := sharedClient
	if h.Client != nil {
		client = h.Client
	}
	if !slices.ContainsFunc(expect, func(status int) bool { return status/100 == 3 }) {
		return client
	}
	stopping, follow := *client, client.CheckRedirect
	stopping.CheckRedirect = func(req *http.Request, via []*http.Request) error {
		switch {
		case slices.Contains(expect, req.Response.StatusCode):
			return http.ErrUseLastResponse
		case follow != nil:
			return follow(req, via)
		case len(via) >= 10: // as net/http does
			return errors.New("stopped after 10 redirects")
		}
		return nil
	}
	return &stopping
}
