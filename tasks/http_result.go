package tasks

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/redact"
)

// maxDrain is the maximum number of bytes that drain reads. For a longer rest of a body, a new
// connection is cheaper.
const maxDrain = 256 << 10

// HTTPResult is the result of an http:request task, in JSON. asynq keeps it as long as the task:
// see asynq.Retention. Secrets in the response are replaced with their references, except in a
// saved body.
type HTTPResult struct {
	Status     int         `json:"status"`
	URL        string      `json:"url,omitempty"`     // URL of the response; empty if no redirect led to it
	Headers    http.Header `json:"headers,omitempty"` // headers that HTTPRequest.KeepHeaders names
	Body       string      `json:"body"`              // at most HTTPRequest.MaxBody bytes; empty if the body was saved
	Base64     bool        `json:"base64,omitempty"`  // Body is the base64 of a body that is not UTF-8
	Truncated  bool        `json:"truncated"`         // Body is incomplete
	Length     int64       `json:"length"`            // length of the whole body in bytes, or -1 if unknown
	Saved      string      `json:"saved,omitempty"`   // path of the saved body below the worker's SaveDir
	SHA256     string      `json:"sha256,omitempty"`  // SHA-256 of the saved body in hexadecimal digits
	DurationMS int64       `json:"duration_ms"`       // time from the call until the body was read or saved
}

// read reads the response into a result, and closes the response. If the body is incomplete, read
// returns both the result and an error. It saves the body to a file only if the call has Save and
// the status is expected.
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

// Read reads the body. If the body breaks off, the error of Read is a NetworkError, whose text has
// no secrets.
func (resp *openResponse) Read(p []byte) (int, error) {
	n, err := resp.Body.Read(p)
	if err != nil && err != io.EOF {
		err = &NetworkError{URL: resp.call.URL, Status: resp.StatusCode, Err: resp.secrets.hideIn(err)}
	}
	return n, err
}

// readBody reads the body into the result, up to the call's MaxBody.
func (resp *openResponse) readBody(result *HTTPResult) error {
	size := cmp.Or(min(resp.call.MaxBody, MaxResultBody), DefaultResultBody) // in a call with Save, MaxBody may be larger than MaxResultBody
	// A secret that begins within the limit is read to its end, so that hideStart can replace it.
	body, err := io.ReadAll(io.LimitReader(resp, size+1+int64(resp.secrets.longest())))
	result.Truncated = err != nil || int64(len(body)) > size
	result.setBody(resp.secrets.hideStart(body, int(size)))
	if err == nil {
		result.Length = resp.drain(int64(len(body)))
	}
	return err
}

// drain reads the rest of the body after n bytes, so that the connection can be reused. It returns
// the length of the whole body. If the rest is longer than maxDrain, it returns the Content-Length,
// or -1 without one.
func (resp *openResponse) drain(n int64) int64 {
	more, err := io.CopyN(io.Discard, resp.Body, maxDrain)
	if errors.Is(err, io.EOF) {
		return n + more
	}
	return resp.ContentLength
}

// setBody stores the body as text if it is UTF-8, or else as base64. From a truncated text it drops
// an incomplete character at the end.
func (r *HTTPResult) setBody(body []byte) {
	text := body
	for n := 1; r.Truncated && n < min(utf8.UTFMax, len(body)) && !utf8.Valid(text); n++ {
		text = body[:len(body)-n]
	}
	if utf8.Valid(text) {
		r.Body = string(text)
	} else {
		r.Body, r.Base64 = base64.StdEncoding.EncodeToString(body), true
	}
}

// DefaultMaxSave is the default of HTTPHandler.MaxSave.
const DefaultMaxSave = 1 << 30

// checkSave returns an error if the body is to be saved and the worker has no folder for it.
func (h *HTTPHandler) checkSave(call HTTPRequest) error {
	if call.Save == "" || h.SaveDir != "" {
		return nil
	}
	return unable(fmt.Errorf("save %q: this worker has no folder to save to: want http.save_dir in its config", call.Save))
}

// save streams the body into a file and records the file in the result. It does not replace secrets
// in the body.
func (h *HTTPHandler) save(resp *openResponse, result *HTTPResult) (err error) {
	if err := h.checkSave(resp.call); err != nil {
		return err
	}
	size := cmp.Or(max(0, h.MaxSave), DefaultMaxSave)
	if resp.call.MaxBody > 0 {
		size = min(size, resp.call.MaxBody)
	}
	body := http.MaxBytesReader(nil, io.NopCloser(resp), size)
	result.Saved, result.SHA256, result.Length, err = saveFile(h.SaveDir, resp.call.Save, body)
	result.Truncated = err != nil
	if _, long := errors.AsType[*http.MaxBytesError](err); long {
		return fmt.Errorf("the body of %s has more than %d bytes, the most that may be saved: %w", resp.call.URL, size, asynq.SkipRetry)
	}
	return err
}

// saveFile streams a body into a file below a folder. It returns the path below the folder, the
// SHA-256 in hexadecimal digits, and the length; after an error the length is -1. If the name is a
// folder or ends in a slash, the file in that folder is named by its SHA-256, so that equal bodies
// are saved once. Because of the os.Root, no path and no link leads out of dir. If the process is
// killed, the temporary file stays in dir: see RemoveUnfinished.
func saveFile(dir, name string, body io.Reader) (saved, hash string, length int64, err error) {
	fail := func(err error) (string, string, int64, error) {
		return "", "", -1, fmt.Errorf("save %q: %w", name, err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fail(err)
	}
	defer root.Close()
	part := unfinishedName()
	file, err := root.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err == nil {
		defer root.Remove(part) // has no effect after the rename
		defer file.Close()      // a second Close does nothing
		err = root.MkdirAll(path.Dir(name), 0o755)
	}
	if err != nil { // do not read a body that cannot be saved
		return fail(err)
	}
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(file, sum), body)
	if _, disk := errors.AsType[*fs.PathError](err); err != nil && !disk {
		return "", "", -1, err
	}
	if err == nil { // sync before the rename, because a power cut could leave half a file of that name
		err = errors.Join(file.Sync(), file.Close())
	}
	if err != nil {
		return fail(err)
	}
	saved, hash = name, fmt.Sprintf("%x", sum.Sum(nil))
	if info, err := root.Stat(name); strings.HasSuffix(name, "/") || err == nil && info.IsDir() {
		saved = path.Join(name, hash)
	}
	if err := root.Rename(part, saved); err != nil {
		return fail(err)
	}
	return saved, hash, n, nil
}

// storeTimeout is how long a worker tries to store the result of a call.
const storeTimeout = time.Minute

// keepResult writes a job's result as JSON and returns failed, which is the job's error or nil. If
// Redis fails, keepResult tries again for a minute or until ctx ends, because a successful job
// without a result would make its call again. After that the error wraps failed and Redis's error.
func keepResult(ctx context.Context, task *asynq.Task, result any, failed error) error {
	writer := task.ResultWriter()
	if writer == nil { // no server runs the task
		return failed
	}
	text, err := marshal(result)
	if err != nil {
		return errors.Join(failed, err)
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		if _, err = writer.Write(text); err == nil {
			return failed
		}
		select {
		case <-ctx.Done():
			err = fmt.Errorf("cannot store the result: %w", err)
			if failed != nil {
				err = fmt.Errorf("%w (and %w)", failed, err)
			}
			return err
		case <-time.After(pause):
		}
	}
}
