package tasks

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/filelock"
	"github.com/headgate/headgate/internal/redact"
)

// maxDrain is how many bytes more are read and dropped, so that the connection
// can be used again and the body's length is known; a longer body costs less to cut
// off than to read.
const maxDrain = 256 << 10

// HTTPResult is the result of an http:request task, in JSON. asynq keeps it
// with the task: while the task waits for a retry or is archived, and after it
// has succeeded for as long as its asynq.Retention says. Secrets that the other
// side repeated are references again, but not in a saved body.
type HTTPResult struct {
	Status int `json:"status"`
	// URL is the one that answered, if redirects led to it.
	URL string `json:"url,omitempty"`
	// Headers are those of the answer that the call asked for.
	Headers http.Header `json:"headers,omitempty"`
	// Body is the beginning of the body as text, as much as the call asked for,
	// without a character that this cuts through. It is empty if the body was
	// saved.
	Body string `json:"body"`
	// Base64 is whether the body was not UTF-8, and Body is its base64.
	Base64 bool `json:"base64,omitempty"`
	// Truncated is whether there was more of the body, or it broke off.
	Truncated bool `json:"truncated"`
	// Length is how many bytes the whole body has: -1 if that is not known,
	// because it broke off, or was not read to its end and the other side did
	// not say.
	Length int64 `json:"length"`
	// Saved is the file that the body was saved to, below the worker's folder
	// for them, and SHA256 its hash in hexadecimal digits.
	Saved  string `json:"saved,omitempty"`
	SHA256 string `json:"sha256,omitempty"`
	// DurationMS is the time from the call to the end of the body in milliseconds,
	// with redirects that were followed, and saving.
	DurationMS int64 `json:"duration_ms"`
}

// read reads what is kept of the answer and closes it. It returns a result even
// if the body breaks off, and then the error too. Only a wanted answer is saved,
// and only of that can a body be too long; of others as much is kept as fits, for
// people to see why.
func (h *HTTPHandler) read(a *answer, start time.Time, wanted bool) (*HTTPResult, error) {
	defer a.resp.Body.Close()
	result := &HTTPResult{Status: a.Status, Headers: a.headers(), Length: -1}
	if a.call.Hops > 0 {
		result.URL = redact.Query(a.URL)
	}
	var err error
	if wanted && a.call.Save != "" {
		err = h.save(a, result)
	} else {
		err = a.readBody(result, wanted)
	}
	result.DurationMS = time.Since(start).Milliseconds()
	return result, err
}

// headers are those of the answer that the call asked for, nil if it has none of
// them. Values of one name keep their order.
func (a *answer) headers() http.Header {
	var kept http.Header
	for _, name := range a.call.KeepHeaders {
		name = http.CanonicalHeaderKey(name)
		for _, value := range a.resp.Header[name] {
			if kept == nil {
				kept = http.Header{}
			}
			kept.Add(name, a.secrets.hide(value))
		}
	}
	return kept
}

// readBody reads the body into the result, up to the call's bound in bytes. Secrets
// become references before anything is kept, and those are not counted: the result
// can be a little longer than the bound.
func (a *answer) readBody(result *HTTPResult, wanted bool) error {
	most := cmp.Or(min(a.call.MaxBody, MaxResultBody), DefaultResultBody) // of a file's bound no more
	// A secret that begins within the bound is read whole, or it could not be
	// told from other text.
	body, err := io.ReadAll(io.LimitReader(a.resp.Body, most+1+int64(a.secrets.longest())))
	result.Truncated = err != nil || int64(len(body)) > most
	result.setBody(a.secrets.hideUpTo(body, int(most)))
	if err != nil {
		return &NetworkError{URL: a.URL, Status: a.Status, Err: a.secrets.hideIn(err)}
	}
	result.Length = a.length(int64(len(body)))
	if result.Truncated && wanted && a.call.OnMaxBody == OnMaxBodyFail {
		return fmt.Errorf("%w: %w", &BodyError{URL: a.URL, Most: most, Length: result.Length}, asynq.SkipRetry)
	}
	return nil
}

// length is how many bytes the body has, of which n are read: it reads on for
// a while, or takes the other side's word. It is -1 where neither tells.
func (a *answer) length(n int64) int64 {
	more, err := io.CopyN(io.Discard, a.resp.Body, maxDrain)
	if errors.Is(err, io.EOF) {
		return n + more
	}
	return a.resp.ContentLength // -1 if unknown, as it is for a compressed body
}

// drop makes the connection ready for another request, if that costs little.
func (a *answer) drop() {
	_ = a.length(0)
	_ = a.resp.Body.Close()
}

// setBody takes the text or, if it is none, its base64. Base64 keeps the bytes of a
// cut character, text does without them.
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

// keepPatience is how long a result waits for a Redis that takes none: what it is of
// was done, and would be done again if the attempt failed now.
const keepPatience = time.Minute

// keepResult writes a result to its task as JSON, over that of an earlier attempt, and
// returns the error that the job failed with, if it did, with that of the writing. Where
// Redis takes none it tries again, until ctx ends or for as long as keepPatience. A
// task that does not come from an asynq server has nowhere to keep it.
func keepResult(ctx context.Context, task *asynq.Task, result any, failed error) error {
	writer := task.ResultWriter()
	if writer == nil {
		return failed
	}
	text, err := marshal(result)
	if err != nil {
		return errors.Join(failed, err)
	}
	ctx, cancel := context.WithTimeout(ctx, keepPatience)
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

// DefaultMaxSave is how many bytes a saved body may have if the handler does
// not say.
const DefaultMaxSave = 1 << 30

// save streams the body into a file and writes to the result where it is. The
// file has its name only once it is whole and on disk; what a process leaves that
// dies before that Tidy removes. A file of that name which is there is replaced in
// one step, so who reads it sees the one or the other.
//
// The folder is an os.Root: no path and no link below it leads out of it.
func (h *HTTPHandler) save(a *answer, result *HTTPResult) error {
	if h.SaveDir == "" {
		return fmt.Errorf("save %q: this worker has no folder to save to", a.call.Save)
	}
	root, err := os.OpenRoot(h.SaveDir)
	if err != nil {
		return fmt.Errorf("save %q: %w", a.call.Save, err)
	}
	defer root.Close()
	part := partPrefix + uuid.NewString() + partSuffix
	// Before the body is read, which may be long.
	if err := root.MkdirAll(path.Dir(a.call.Save), 0o755); err != nil {
		return fmt.Errorf("save %q: %w", a.call.Save, err)
	}
	defer root.Remove(part) // which is gone if all went well
	hash, err := h.write(root, part, a, result)
	if err != nil {
		return err
	}
	// In a folder the file is named by what it holds: the same body is there once.
	name := a.call.Save
	if info, err := root.Stat(name); strings.HasSuffix(name, "/") || err == nil && info.IsDir() {
		name = path.Join(name, hash)
	}
	if err := root.Rename(part, name); err != nil {
		return fmt.Errorf("save %q: %w", a.call.Save, err)
	}
	result.Saved, result.SHA256 = name, hash
	return nil
}

// Parts are files that are not whole yet, in the folder itself: so that they are
// found again without a walk, and a rename stays within one file system.
const (
	partPrefix = ".headgate-"
	partSuffix = ".part"
)

// Tidy removes what processes have left in SaveDir that died while they saved a
// body. Those of processes that are alive stay. It is for the start of a worker, and
// does nothing without a SaveDir. It goes on after an error, and returns all of them.
func (h *HTTPHandler) Tidy() error {
	if h.SaveDir == "" {
		return nil
	}
	// The folder's own name is no pattern.
	left, err := fs.Glob(os.DirFS(h.SaveDir), partPrefix+"*"+partSuffix)
	for _, part := range left {
		err = errors.Join(err, removePart(filepath.Join(h.SaveDir, part)))
	}
	return err
}

// removePart removes a part unless somebody writes to it: who does holds its lock,
// which ends with the process. That tells more than its age: a body can be slow.
func removePart(name string) error {
	file, err := os.OpenFile(name, os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil // it is whole by now
	}
	if err != nil {
		return err
	}
	defer file.Close()
	if filelock.Lock(file) != nil {
		return nil
	}
	// Between making a file and its lock a writer can lose it here: then its rename
	// fails, and the job with it.
	return os.Remove(name)
}

// write streams the body into the file of that name and returns its hash. It reads
// one byte more than may be saved, to know that there is one. After an error the
// result says that it is truncated, and the caller removes the file.
//
// A body that breaks off is a NetworkError and one that is too long a BodyError;
// other errors are the disk's. The body is saved as it was sent, and secrets that
// the other side repeats in it, too.
func (h *HTTPHandler) write(root *os.Root, name string, a *answer, result *HTTPResult) (string, error) {
	create := createFile
	if h.create != nil {
		create = h.create
	}
	file, err := create(root, name)
	if err != nil {
		return "", fmt.Errorf("save %q: %w", a.call.Save, err)
	}
	defer file.Close() // a second time where all goes well, which does nothing
	// The payload may ask for less than the handler allows, and not for more.
	most := cmp.Or(max(0, h.MaxSave), DefaultMaxSave)
	if a.call.MaxBody > 0 {
		most = min(most, a.call.MaxBody)
	}
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(file, sum), io.LimitReader(a.resp.Body, most+1))
	result.Truncated = true
	switch _, disk := errors.AsType[*fs.PathError](err); {
	case err != nil && !disk:
		return "", &NetworkError{URL: a.URL, Status: a.Status, Err: a.secrets.hideIn(err)}
	case n > most:
		result.Length = a.resp.ContentLength
		return "", fmt.Errorf("%w: %w", &BodyError{URL: a.URL, Most: most, Length: result.Length}, asynq.SkipRetry)
	case err == nil: // on disk before it has its name: no half file after a power cut
		err = errors.Join(file.Sync(), file.Close())
	}
	if err != nil {
		return "", fmt.Errorf("save %q: %w", a.call.Save, err)
	}
	result.Truncated, result.Length = false, n
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// createFile makes a file that must not be there yet, and locks it for as long as
// it is open: see removePart.
func createFile(root *os.Root, name string) (saveFile, error) {
	file, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err == nil {
		_ = filelock.Lock(file) // which nobody else can have
	}
	return file, err
}
