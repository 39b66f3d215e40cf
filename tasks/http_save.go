package tasks

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"strings"

	"github.com/google/uuid"
	"github.com/hibiken/asynq"
)

// DefaultMaxSave is the default of HTTPHandler.MaxSave.
const DefaultMaxSave = 1 << 30

// save streams the body into a file and records the file in the result. It does not replace secrets
// in the body.
func (h *HTTPHandler) save(resp *openResponse, result *HTTPResult) error {
	if h.SaveDir == "" {
		return fmt.Errorf("save %q: this worker has no folder to save to", resp.call.Save)
	}
	size := cmp.Or(max(0, h.MaxSave), DefaultMaxSave)
	if resp.call.MaxBody > 0 {
		size = min(size, resp.call.MaxBody)
	}
	file, err := saveFile(h.SaveDir, resp.call.Save, http.MaxBytesReader(nil, resp.Body, size))
	if err == nil {
		result.Saved, result.SHA256, result.Length = file.name, file.hash, file.length
		return nil
	}
	result.Truncated = true
	_, disk := errors.AsType[*diskError](err)
	_, long := errors.AsType[*http.MaxBytesError](err)
	switch {
	case long:
		result.Length = resp.ContentLength
		return fmt.Errorf("the body of %s has more than %d bytes, the most that may be saved: %w", resp.call.URL, size, asynq.SkipRetry)
	case !disk:
		return &NetworkError{URL: resp.call.URL, Status: resp.StatusCode, Err: resp.secrets.hideIn(err)}
	}
	return err
}

// savedFile is a complete file.
type savedFile struct {
	name, hash string // the path below the folder, and the SHA-256 in hexadecimal digits
	length     int64
}

// diskError is an error of saveFile with a folder or a file. The body can still be complete.
type diskError struct{ error }

func (e *diskError) Unwrap() error { return e.error }

// saveFile streams a body into a file below a folder. If the name is a folder or ends in a slash, the
// file in that folder is named by its SHA-256, so that equal bodies are saved once. saveFile renames
// the file when it is complete and on disk, and replaces a file of that name atomically. It uses an
// os.Root, so no path and no link leads out of dir. A killed process leaves .headgate-*.part behind.
func saveFile(dir, name string, body io.Reader) (savedFile, error) {
	fail := func(err error) (savedFile, error) {
		return savedFile{}, &diskError{fmt.Errorf("save %q: %w", name, err)}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fail(err)
	}
	defer root.Close()
	part := ".headgate-" + uuid.NewString() + ".part"
	file, err := root.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err == nil {
		defer root.Remove(part) // has no effect after the rename
		defer file.Close()      // a second Close does nothing
		err = root.MkdirAll(path.Dir(name), 0o755)
	}
	if err != nil { // before the body is read
		return fail(err)
	}
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(file, sum), body)
	if _, disk := errors.AsType[*fs.PathError](err); err != nil && !disk {
		return savedFile{}, err
	}
	if err == nil { // before the rename, or a power cut could leave half a file of that name
		err = errors.Join(file.Sync(), file.Close())
	}
	if err != nil {
		return fail(err)
	}
	saved := savedFile{name, hex.EncodeToString(sum.Sum(nil)), n}
	if info, err := root.Stat(name); strings.HasSuffix(name, "/") || err == nil && info.IsDir() {
		saved.name = path.Join(name, saved.hash)
	}
	if err := root.Rename(part, saved.name); err != nil {
		return fail(err)
	}
	return saved, nil
}
