package tasks

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/google/uuid"
	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/filelock"
)

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
	most := h.maxSave(a.call.MaxBody)
	body := &body{Reader: io.LimitReader(a.resp.Body, most+1)}
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(file, sum), body)
	switch {
	case body.broken != nil:
		result.Truncated = true
		return "", &NetworkError{URL: a.call.URL, Status: a.resp.StatusCode, Err: a.secrets.hideIn(body.broken)}
	case n > most:
		result.Truncated = true
		result.Length = a.resp.ContentLength
		return "", fmt.Errorf("%w: %w", &BodyError{URL: a.call.URL, Most: most, Length: result.Length}, asynq.SkipRetry)
	case err == nil: // on disk before it has its name: no half file after a power cut
		err = errors.Join(file.Sync(), file.Close())
	}
	if err != nil {
		result.Truncated = true
		return "", fmt.Errorf("save %q: %w", a.call.Save, err)
	}
	result.Length = n
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// maxSave is how long a file may get, in bytes: the payload may ask for less than the
// handler allows, and not for more.
func (h *HTTPHandler) maxSave(asked int64) int64 {
	most := h.MaxSave
	if most <= 0 {
		most = DefaultMaxSave
	}
	if asked > 0 {
		most = min(most, asked)
	}
	return most
}

// body tells an error in reading from one in writing: io.Copy returns either.
type body struct {
	io.Reader
	broken error
}

// Read implements io.Reader. It keeps the error of a body that broke off, which is
// the server's and not the folder's.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err != nil && err != io.EOF {
		b.broken = err
	}
	return n, err
}

// saveFile is what of an *os.File is used. Tests have one whose disk is full.
type saveFile interface {
	io.WriteCloser
	Sync() error
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
