package tasks

import (
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"time"
	"unicode/utf8"

	"github.com/hibiken/asynq"
)

// MaxResultBody is how many bytes of an answer's body are kept in the result.
const MaxResultBody = 64 << 10

// maxDrain is how many bytes more are read and dropped, so that the connection
// can be used again; a longer body costs less to cut off than to read.
const maxDrain = 256 << 10

// HTTPResult is the result of an http:request task, in JSON. asynq keeps it
// with the task: while the task waits for a retry or is archived, and after it
// has succeeded for as long as its asynq.Retention says.
type HTTPResult struct {
	Status int `json:"status"`
	// Body is the first MaxResultBody bytes of the body as text, without a
	// character that they cut through.
	Body string `json:"body"`
	// Base64 is whether the body was not UTF-8, and Body is its base64.
	Base64 bool `json:"base64,omitempty"`
	// Truncated is whether there was more of the body, or it broke off.
	Truncated bool `json:"truncated"`
	// DurationMS is the time from the call to the end of Body.
	DurationMS int64 `json:"duration_ms"`
}

// readResult reads what is kept of the answer. It returns a result even if the
// body breaks off, and then the error too.
func readResult(resp *http.Response, start time.Time) (*HTTPResult, error) {
	body, err := io.ReadAll(io.LimitReader(resp.Body, MaxResultBody+1))
	result := &HTTPResult{
		Status:     resp.StatusCode,
		Truncated:  err != nil || len(body) > MaxResultBody,
		DurationMS: time.Since(start).Milliseconds(),
	}
	body = body[:min(len(body), MaxResultBody)]
	text := body
	if result.Truncated {
		text = trimPartialRune(body)
	}
	if utf8.Valid(text) {
		result.Body = string(text)
	} else {
		result.Body, result.Base64 = base64.StdEncoding.EncodeToString(body), true
	}
	if err == nil {
		// Only the connection's reuse hangs on the rest, so errors are no loss.
		_, _ = io.CopyN(io.Discard, resp.Body, maxDrain)
	}
	return result, err
}

// trimPartialRune drops the beginning of a character at the end of a text
// that was cut.
func trimPartialRune(text []byte) []byte {
	for back := 1; back < utf8.UTFMax && back <= len(text); back++ {
		tail := text[len(text)-back:]
		if utf8.RuneStart(tail[0]) {
			if !utf8.FullRune(tail) {
				return text[:len(text)-back]
			}
			break
		}
	}
	return text
}

// keep writes the result to the task. A task that does not come from an asynq
// server has nowhere to keep it.
func (r *HTTPResult) keep(task *asynq.Task) error {
	writer := task.ResultWriter()
	if writer == nil {
		return nil
	}
	text, err := marshal(r)
	if err == nil {
		_, err = writer.Write(text)
	}
	if err != nil {
		return fmt.Errorf("the result of status %d was not kept: %w", r.Status, err)
	}
	return nil
}
