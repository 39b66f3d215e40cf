package tasks

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/hibiken/asynq"
)

// DefaultMaxSave is how many bytes a saved body may have if the handler does not say.
const DefaultMaxSave = 1 << 30

// A part is a file that is not complete yet, directly in SaveDir, where Tidy finds it.
const (
	partPrefix = ".headgate-"
	partSuffix = ".part"
	// maxPartAge is after how long without a write a part counts as left over.
	maxPartAge = 24 * time.Hour
)

// save streams the body into a file and records the file in the result. The file gets its name
// when it is complete and on disk, and replaces a file of that name in one step. No path
// and no link leads out of SaveDir, because that is an os.Root.
func (h *HTTPHandler) save(resp *openResponse, result *HTTPResult) error {
	fail := func(err error) error { return fmt.Errorf("save %q: %w", resp.call.Save, err) }
	if h.SaveDir == "" {
		return fail(errors.New("this worker has no folder to save to"))
	}
	root, err := os.OpenRoot(h.SaveDir)
	if err != nil {
		return fail(err)
	}
	defer root.Close()
	if err := root.MkdirAll(path.Dir(resp.call.Save), 0o755); err != nil { // before a body that may be long
		return fail(err)
	}
	part := partPrefix + uuid.NewString() + partSuffix
	defer root.Remove(part) // which is renamed if all went well
	hash, err := h.write(root, part, resp, result)
	if _, disk := errors.AsType[*fs.PathError](err); disk {
		return fail(err)
	}
	if err != nil {
		return err
	}
	// In a folder the file is named by its content, so the same body is there once.
	name := resp.call.Save
	if info, err := root.Stat(name); strings.HasSuffix(name, "/") || err == nil && info.IsDir() {
		name = path.Join(name, hash)
	}
	if err := root.Rename(part, name); err != nil {
		return fail(err)
	}
	result.Saved, result.SHA256 = name, hash
	return nil
}

// write streams the body into a new file and returns its hash. The body is saved as the upstream
// sent it, including secrets that it repeats. A body that breaks off is a NetworkError, one that
// is too long a BodyError, and an error of the disk an fs.PathError. After an error the caller
// removes the file.
func (h *HTTPHandler) write(root *os.Root, name string, resp *openResponse, result *HTTPResult) (string, error) {
	file, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return "", err
	}
	defer file.Close() // a second Close does nothing
	size := cmp.Or(max(0, h.MaxSave), DefaultMaxSave)
	if resp.call.MaxBody > 0 {
		size = min(size, resp.call.MaxBody)
	}
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(file, sum), io.LimitReader(resp.Body, size+1)) // one byte more tells whether there is more
	result.Truncated = true
	switch _, disk := errors.AsType[*fs.PathError](err); {
	case err != nil && !disk:
		return "", &NetworkError{URL: resp.URL, Status: resp.Status, Err: resp.secrets.hideIn(err)}
	case n > size:
		result.Length = resp.length
		return "", fmt.Errorf("%w: %w", &BodyError{URL: resp.URL, Max: size, Length: result.Length}, asynq.SkipRetry)
	case err == nil: // on disk before it has its name, or a power cut could leave half a file
		err = errors.Join(file.Sync(), file.Close())
	}
	if err != nil {
		return "", err
	}
	result.Truncated, result.Length = false, n
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// Tidy removes files that killed processes have left in SaveDir: parts of bodies that nobody has
// written to for a day. It is for the start of a worker, and does nothing without a SaveDir. It
// continues after an error, and returns all errors.
func (h *HTTPHandler) Tidy() error {
	if h.SaveDir == "" {
		return nil
	}
	root, err := os.OpenRoot(h.SaveDir)
	if err != nil {
		return err
	}
	defer root.Close()
	parts, err := fs.Glob(root.FS(), partPrefix+"*"+partSuffix)
	for _, part := range parts {
		info, statErr := root.Stat(part)
		if errors.Is(statErr, fs.ErrNotExist) || statErr == nil && time.Since(info.ModTime()) < maxPartAge {
			continue
		}
		err = errors.Join(err, cmp.Or(statErr, root.Remove(part)))
	}
	return err
}
