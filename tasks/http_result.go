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

// maxDrain is how many further bytes of a body are read and dropped, so that the connection can
// be reused and the body's length is known. Reading more costs more than a new connection.
const maxDrain = 256 << 10

// HTTPResult is the result of an http:request task, in JSON. asynq keeps it with the task:
// while the task waits for a retry or is archived, and after it has succeeded for its
// asynq.Retention. Secrets that the upstream repeated are references again, except in a saved
// body.
type HTTPResult struct {
	Status int `json:"status"`
	// URL is the one that answered, if redirects led to it.
	URL string `json:"url,omitempty"`
	// Headers are the response's headers that the call asked for.
	Headers http.Header `json:"headers,omitempty"`
	// Body is the beginning of the body as text, as much as the call asked for and without
	// a character that is cut off. It is empty if the body was saved.
	Body string `json:"body"`
	// Base64 reports that the body was not UTF-8, and Body is its base64.
	Base64 bool `json:"base64,omitempty"`
	// Truncated reports that there was more of the body, or that it broke off.
	Truncated bool `json:"truncated"`
	// Length is how many bytes the whole body has. It is -1 if that is not known, because the
	// body broke off, or was not read to its end and the upstream did not say.
	Length int64 `json:"length"`
	// Saved is the file with the body, below the worker's folder for bodies, and SHA256 its
	// hash in hexadecimal digits.
	Saved  string `json:"saved,omitempty"`
	SHA256 string `json:"sha256,omitempty"`
	// DurationMS is the time from the call to the end of the body in milliseconds, including
	// redirects and saving.
	DurationMS int64 `json:"duration_ms"`
}

// read reads what is kept of the response and closes it. If the body breaks off, it returns
// both a result and the error. Only a wanted response is saved, and only its body can be too
// long. The result of another response shows as much of the body as fits.
func (h *HTTPHandler) read(resp *openResponse, start time.Time, wanted bool) (*HTTPResult, error) {
	defer resp.Body.Close()
	result := &HTTPResult{Status: resp.Status, Length: -1}
	for _, name := range resp.call.KeepHeaders {
		for _, value := range resp.Header.Values(name) {
			if result.Headers == nil {
				result.Headers = http.Header{}
			}
			result.Headers.Add(name, resp.secrets.hide(value))
		}
	}
	if resp.call.Hops > 0 {
		result.URL = redact.Query(resp.URL)
	}
	var err error
	if wanted && resp.call.Save != "" {
		err = h.save(resp, result)
	} else {
		err = resp.readBody(result, wanted)
	}
	result.DurationMS = time.Since(start).Milliseconds()
	return result, err
}

// readBody reads the body into the result, up to the call's limit.
func (resp *openResponse) readBody(result *HTTPResult, wanted bool) error {
	size := cmp.Or(min(resp.call.MaxBody, MaxResultBody), DefaultResultBody) // MaxBody can be larger for a file
	// A secret that begins within the limit is read whole, so that it can be recognized.
	body, err := io.ReadAll(io.LimitReader(resp.Body, size+1+int64(resp.secrets.longest())))
	result.Truncated = err != nil || int64(len(body)) > size
	result.setBody(resp.secrets.hideStart(body, int(size)))
	if err != nil {
		return &NetworkError{URL: resp.URL, Status: resp.Status, Err: resp.secrets.hideIn(err)}
	}
	result.Length = resp.totalLength(int64(len(body)))
	if result.Truncated && wanted && resp.call.OnMaxBody == OnMaxBodyFail {
		return fmt.Errorf("%w: %w", &BodyError{URL: resp.URL, Max: size, Length: result.Length}, asynq.SkipRetry)
	}
	return nil
}

// totalLength returns how many bytes the body has, of which n are read. It reads maxDrain bytes
// more, or believes the upstream. The result is -1 if neither tells.
func (resp *openResponse) totalLength(n int64) int64 {
	more, err := io.CopyN(io.Discard, resp.Body, maxDrain)
	if errors.Is(err, io.EOF) {
		return n + more
	}
	return resp.length
}

// drop closes the response, and prepares the connection for another request if that is cheap.
func (resp *openResponse) drop() {
	_ = resp.totalLength(0)
	_ = resp.Body.Close()
}

// setBody stores the body as text, or as base64 if it is not UTF-8. Text loses a character that
// is cut off, base64 keeps its bytes.
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

// resultTimeout is how long keepResult tries to write a result. Its work is done, and would be
// done again if the attempt failed now.
const resultTimeout = time.Minute

// keepResult writes a result to its task as JSON, replacing that of an earlier attempt. It
// returns the error that the job failed with, joined with its own. If Redis does not accept
// the result, it tries again until ctx ends or for resultTimeout. A task that does not
// come from an asynq server has no place for a result.
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
			lost := fmt.Errorf("the result was not kept: %w", err)
			if failed == nil {
				return lost
			}
			return fmt.Errorf("%w (and %w)", failed, lost)
		case <-time.After(pause):
		}
	}
}
