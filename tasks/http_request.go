package tasks

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/hibiken/asynq"
)

// TypeHTTPRequest names the task that makes one HTTP call.
const TypeHTTPRequest = "http:request"

// DefaultTimeout is how long an HTTP call may take if its payload does not say.
const DefaultTimeout = 30 * time.Second

// HTTPRequest is the payload of an http:request task. Only URL is required:
//
//	{"method": "PUT", "url": "https://example.com/items/7",
//	 "headers": {"Content-Type": "application/json"}, "body": "{\"n\":1}",
//	 "timeout": "10s", "expect": [200, 404]}
//
// In the path and the query of URL and in the values of Headers ${env:NAME} and
// ${file:/path} stand for secrets of the worker that makes the call, as far as
// it gives them out: see HTTPHandler.Secrets. They are put in when the request
// is sent, and are in no payload, result, error or log. ${$} stands for a dollar sign
// where that would begin a reference; Literal writes text of others so.
type HTTPRequest struct {
	// Method is sent as it is written. The zero value means GET.
	Method string `json:"method,omitempty"`
	// URL is absolute, http or https, without a user and password: these go
	// into the header Authorization, from a secret.
	URL string `json:"url"`
	// Headers are sent as they are but for secrets; Host names another host
	// than URL's. A User-Agent that is not given is "headgate".
	Headers map[string]string `json:"headers,omitempty"`
	// Body is sent as UTF-8 text.
	Body string `json:"body,omitempty"`
	// Timeout is how long the call may take, redirects and reading the answer
	// included. In JSON it is a text such as "10s". The zero value means
	// DefaultTimeout.
	Timeout time.Duration `json:"-"`
	// Expect lists the statuses that mean success. The zero value means any
	// 2xx.
	Expect []int `json:"expect,omitempty"`
	// Redirects is what becomes of an answer that redirects, unless its status
	// is expected. The zero value means RedirectsOff.
	Redirects Redirects `json:"redirects,omitempty"`
	// Hops is how many redirects have led to URL, up to MaxRedirects: a job
	// that goes on at another URL counts them here.
	Hops int `json:"hops,omitempty"`
	// KeepHeaders names the headers of the answer to keep in the result.
	KeepHeaders []string `json:"keep_headers,omitempty"`
	// Save is where to put the body of an expected answer, instead of into the
	// result: a path below the worker's folder for bodies. A folder, which is
	// there or ends in a slash, gets a file named by the body's SHA-256.
	Save string `json:"save,omitempty"`
	// MaxBody is how many bytes of the body are wanted. In the result it is at
	// most MaxResultBody, and the zero value means DefaultResultBody; of a saved
	// body it is how long that may be, and the zero value means as long as the
	// worker allows.
	MaxBody int64 `json:"max_body,omitempty"`
	// OnMaxBody is what becomes of a longer body in the result. The zero value
	// means OnMaxBodyTruncate. A longer body is never saved: that is an error.
	OnMaxBody OnMaxBody `json:"on_max_body,omitempty"`
}

// OnMaxBody is what becomes of a body that is longer than wanted.
type OnMaxBody string

// The values of HTTPRequest.OnMaxBody.
const (
	OnMaxBodyTruncate OnMaxBody = "truncate" // keep its beginning; the result says so
	OnMaxBodyFail     OnMaxBody = "fail"     // archive the job with a *BodyError
)

// NewHTTPRequest is a task that makes the call. To keep the answer after the
// call has succeeded give it an asynq.Retention. The error says which field is
// wrong, its value and what would be right.
func NewHTTPRequest(r HTTPRequest, opts ...asynq.Option) (*asynq.Task, error) {
	if err := r.Validate(); err != nil {
		return nil, fmt.Errorf("%s: %w", TypeHTTPRequest, err)
	}
	payload, err := r.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", TypeHTTPRequest, err)
	}
	return asynq.NewTask(TypeHTTPRequest, payload, opts...), nil
}

// MarshalJSON writes the payload with the timeout as text, and leaves the
// fields out that have their zero value.
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

// UnmarshalJSON reads a payload strictly. It does not Validate it.
func (r *HTTPRequest) UnmarshalJSON(payload []byte) error {
	var read HTTPRequest
	var timeout *string
	err := decodeStrict(payload,
		field{"method", &read.Method, `a text such as "GET"`},
		field{"url", &read.URL, `a text such as "https://example.com/path"`},
		field{"headers", &read.Headers, `an object of texts such as {"Accept": "text/html"}`},
		field{"body", &read.Body, `a text`},
		field{"timeout", &timeout, `a text such as "10s"`},
		field{"expect", &read.Expect, `a list of statuses such as [200, 404]`},
		field{"redirects", &read.Redirects, `"off", "same-host" or "requeue"`},
		field{"hops", &read.Hops, `a number of redirects`},
		field{"keep_headers", &read.KeepHeaders, `a list of names such as ["ETag"]`},
		field{"save", &read.Save, `a path such as "pages/"`},
		field{"max_body", &read.MaxBody, `a number of bytes such as 65536`},
		field{"on_max_body", &read.OnMaxBody, `"truncate" or "fail"`},
	)
	if err != nil {
		return err
	}
	if timeout != nil {
		read.Timeout, err = time.ParseDuration(*timeout)
		if err != nil || read.Timeout <= 0 {
			return fmt.Errorf(`timeout %q: want a duration above zero such as "10s" or "1m30s"`, *timeout)
		}
	}
	*r = read
	return nil
}

func parseHTTPRequest(payload []byte) (HTTPRequest, error) {
	var r HTTPRequest
	if err := r.UnmarshalJSON(payload); err != nil {
		return r, err
	}
	return r, r.Validate()
}

func validateHTTPRequest(payload []byte) error {
	_, err := parseHTTPRequest(payload)
	return err
}

// marshal is json.Marshal without \u0026 for the & in URLs and the like:
// people read payloads and results in tools.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
