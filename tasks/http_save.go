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

// DefaultMaxSave is the default of HTTPHandler.MaxSave.
const DefaultMaxSave = 1 << 30

// A part is an incomplete file in SaveDir.
const (
	partPrefix = ".headgate-"
	partSuffix = ".part"
	// maxPartAge is the time without a write after which a part counts as abandoned.
	maxPartAge = 24 * time.Hour
)

// save streams the body into a file and records the file in the result. It renames the file when it
// is complete and on disk, and replaces a file of that name atomically. It uses an os.Root, so no
// path and no link leads out of SaveDir.
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
	if err := root.MkdirAll(path.Dir(resp.call.Save), 0o755); err != nil { // fails before the body is read
		return fail(err)
	}
	part := partPrefix + uuid.NewString() + partSuffix
	defer root.Remove(part) // has no effect after the rename
	hash, err := h.write(root, part, resp, result)
	if _, disk := errors.AsType[*fs.PathError](err); disk {
		return fail(err)
	}
	if err != nil {
		return err
	}
	// In a folder the file is named by its content, so that equal bodies are saved once.
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

// write streams the body into a new file and returns its hash. It does not replace secrets in the
// body. The error is a NetworkError for an incomplete body, a BodyError for a body that is too long,
// and an fs.PathError for an error of the disk.
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
	n, err := io.Copy(io.MultiWriter(file, sum), io.LimitReader(resp.Body, size+1)) // one byte more shows that the body is longer
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

// Tidy removes incomplete files of killed processes in SaveDir: those without a write for a day.
// Workers call it when they start. It continues after an error, and returns all errors.
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
