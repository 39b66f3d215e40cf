package tasks

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
	"unicode/utf8"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/redact"
)

// maxDrain is the number of further bytes of a body that are read and dropped, so that the connection
// can be reused and the body's length is known. Reading more costs more than a new connection.
const maxDrain = 256 << 10

// HTTPResult is the result of an http:request task, in JSON. asynq keeps the result while the task
// waits for a retry or is archived, and for the task's asynq.Retention after success. Secrets in
// the response are replaced with their references, except in a saved body.
type HTTPResult struct {
	Status int `json:"status"`
	// URL is the URL of the response, if redirects led to it.
	URL string `json:"url,omitempty"`
	// Headers are the headers of HTTPRequest.KeepHeaders.
	Headers http.Header `json:"headers,omitempty"`
	// Body is the body up to HTTPRequest.MaxBody. It is empty if the body was saved.
	Body string `json:"body"`
	// Base64 reports that the body is not UTF-8, and that Body is its base64.
	Base64 bool `json:"base64,omitempty"`
	// Truncated reports that Body is incomplete.
	Truncated bool `json:"truncated"`
	// Length is the length of the whole body in bytes, or -1 if it is unknown.
	Length int64 `json:"length"`
	// Saved is the path of the saved body below the worker's SaveDir.
	Saved string `json:"saved,omitempty"`
	// SHA256 is the hash of the saved body in hexadecimal digits.
	SHA256 string `json:"sha256,omitempty"`
	// DurationMS is the time from the call to the end of the body in milliseconds, including saving.
	DurationMS int64 `json:"duration_ms"`
}

// read reads the response into a result and closes it. If the body is incomplete, it returns both
// the result and an error. It saves the body, and checks its length, only if the response is
// expected.
func (h *HTTPHandler) read(resp *openResponse, start time.Time, expected bool) (*HTTPResult, error) {
	defer resp.Body.Close()
	result := &HTTPResult{Status: resp.StatusCode, Length: -1}
	for _, name := range resp.call.KeepHeaders {
		for _, value := range resp.Header.Values(name) {
			if result.Headers == nil {
				result.Headers = http.Header{}
			}
			result.Headers.Add(name, resp.secrets.hide(value))
		}
	}
	if resp.call.Hops > 0 {
		result.URL = redact.Query(resp.call.URL)
	}
	var err error
	if expected && resp.call.Save != "" {
		err = h.save(resp, result)
	} else {
		err = resp.readBody(result)
	}
	result.DurationMS = time.Since(start).Milliseconds()
	return result, err
}

// readBody reads the body into the result, up to the call's limit.
func (resp *openResponse) readBody(result *HTTPResult) error {
	size := cmp.Or(min(resp.call.MaxBody, MaxResultBody), DefaultResultBody) // for a file, MaxBody can be larger
	// A secret that begins within the limit is read to its end, so that it can be recognized.
	body, err := io.ReadAll(io.LimitReader(resp.Body, size+1+int64(resp.secrets.longest())))
	result.Truncated = err != nil || int64(len(body)) > size
	result.setBody(resp.secrets.hideStart(body, int(size)))
	if err != nil {
		return &NetworkError{URL: resp.call.URL, Status: resp.StatusCode, Err: resp.secrets.hideIn(err)}
	}
	result.Length = resp.drain(int64(len(body)))
	return nil
}

// drain reads up to maxDrain more bytes of the body, after n bytes that were read before. If drain
// finds the end, it returns the body's length. Otherwise it returns the Content-Length, or -1.
func (resp *openResponse) drain(n int64) int64 {
	more, err := io.CopyN(io.Discard, resp.Body, maxDrain)
	if errors.Is(err, io.EOF) {
		return n + more
	}
	return resp.ContentLength
}

// drop closes the response. It reads a short body to its end, so that the connection is reused.
func (resp *openResponse) drop() {
	_ = resp.drain(0)
	_ = resp.Body.Close()
}

// setBody stores the body as text, without an incomplete character at its end, or as base64.
func (r *HTTPResult) setBody(body []byte) {
	text := body
	for n := 1; r.Truncated && n < utf8.UTFMax && n <= len(body); n++ {
		if whole := len(body) - n; !utf8.FullRune(body[whole:]) {
			text = body[:whole]
		}
	}
	if utf8.Valid(text) {
		r.Body = string(text)
	} else {
		r.Body, r.Base64 = base64.StdEncoding.EncodeToString(body), true
	}
}

// resultTimeout is the time for which keepResult tries to write a result. If keepResult fails after
// a successful call, the job is retried and makes the call again.
const resultTimeout = time.Minute

// keepResult writes a result to its task as JSON. If Redis fails, it tries again until ctx ends or
// resultTimeout is over. It returns the job's error failed, joined with the error of writing. A
// task that does not come from an asynq server keeps no result.
func keepResult(ctx context.Context, task *asynq.Task, result any, failed error) error {
	writer := task.ResultWriter()
	if writer == nil {
		return failed
	}
	text, err := marshal(result)
	if err != nil {
		return errors.Join(failed, err)
	}
	ctx, cancel := context.WithTimeout(ctx, resultTimeout)
	defer cancel()
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		if _, err = writer.Write(text); err == nil {
			return failed
		}
		select {
		case <-ctx.Done():
			lost := fmt.Errorf("cannot store the result: %w", err)
			if failed == nil {
				return lost
			}
			return fmt.Errorf("%w (and %w)", failed, lost)
		case <-time.After(pause):
		}
	}
}
