package embedded

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// ErrChanged says that there is more in a folder than the caller has seen.
var ErrChanged = errors.New("the spool has changed meanwhile")

// A Stamp tells one state of what waits in a folder from another. The zero Stamp
// is any.
type Stamp string

// Spool appends all lines, or none of them, to the file that the next embedded
// server takes, and returns once they are on the disk, with the stamp of what waits
// by then. A line must not be empty or contain a line break. Where what waits is not
// what was seen before, the error is [ErrChanged]. Where a server runs by now, nobody
// would take the lines: the error is a [*RunningError] with the address to use instead.
func (f Folder) Spool(seen Stamp, lines [][]byte) (Stamp, error) {
	var text bytes.Buffer
	for i, line := range lines {
		if len(line) == 0 || bytes.ContainsAny(line, "\r\n") {
			return "", fmt.Errorf("spool line %d is %q: it must be one line with text", i+1, line)
		}
		text.Write(line)
		text.WriteByte('\n')
	}
	unlock, err := f.lock()
	if err != nil {
		return "", fmt.Errorf("spool jobs: %w", err)
	}
	defer unlock()
	if addr, ok := f.Find(context.Background()); ok {
		return "", &RunningError{Addr: addr}
	}
	now, err := f.stamp()
	if err == nil && seen != "" && now != seen {
		return "", ErrChanged
	}
	if err == nil {
		err = appendTo(f.spoolFile(), text.Bytes())
	}
	if err != nil {
		return "", fmt.Errorf("spool jobs: %w", err)
	}
	now, _ = f.stamp() // the lines are on the disk, whatever becomes of it
	return now, nil
}

// stamp is that of all files which Waiting reads. The caller holds the lock.
func (f Folder) stamp() (Stamp, error) {
	names, err := f.taken()
	if err != nil {
		return "", err
	}
	var text strings.Builder
	for _, name := range append(names, f.spoolFile(), f.keptFile()) {
		stat, err := os.Stat(name)
		switch {
		case err == nil:
			fmt.Fprintln(&text, name, stat.Size(), stat.ModTime().UnixNano())
		case os.IsNotExist(err):
			fmt.Fprintln(&text, name)
		default:
			return "", err
		}
	}
	return Stamp(text.String()), nil
}

// Waiting gives what the next embedded server will find: the lines of the spool, with
// those that an earlier server took and was not done with, and the keys that the last
// server kept. The stamp tells Spool what was seen.
func (f Folder) Waiting() (lines [][]byte, keys []string, seen Stamp, err error) {
	unlock, err := f.lock()
	if err != nil {
		return nil, nil, "", fmt.Errorf("read the spool: %w", err)
	}
	defer unlock()
	lines, err = f.spooled()
	if err == nil {
		err = readKept(f.keptFile(), func(k kept) error {
			keys = append(keys, k.Key)
			return nil
		})
	}
	if err == nil {
		seen, err = f.stamp()
	}
	if err != nil {
		return nil, nil, "", fmt.Errorf("read the spool: %w", err)
	}
	return lines, keys, seen, nil
}

// spooled gives the lines that the next server will take. The caller holds the lock.
func (f Folder) spooled() (lines [][]byte, err error) {
	names, err := f.taken()
	if err != nil {
		return nil, err
	}
	return readLines(append(names, f.spoolFile()))
}

func readLines(names []string) (lines [][]byte, err error) {
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil && !os.IsNotExist(err) {
			return nil, err
		}
		for line := range bytes.Lines(whole(text)) {
			lines = append(lines, bytes.TrimSuffix(line, []byte("\n")))
		}
	}
	return lines, nil
}

// appendTo appends text to the file. What a crashed or failed call left behind
// after the last whole line is overwritten.
func appendTo(name string, text []byte) error {
	file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	end, err := wholeSize(file)
	if err != nil {
		return err
	}
	if err := file.Truncate(end); err != nil {
		return err
	}
	if _, err := file.WriteAt(text, end); err != nil {
		return errors.Join(err, file.Truncate(end))
	}
	return file.Sync()
}

// wholeSize is where the last whole line of the file ends. That is nearly always
// the end of the file, which one byte tells.
func wholeSize(file *os.File) (int64, error) {
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil || size == 0 {
		return 0, err
	}
	last := make([]byte, 1)
	if _, err := file.ReadAt(last, size-1); err != nil || last[0] == '\n' {
		return size, err
	}
	text, err := io.ReadAll(io.NewSectionReader(file, 0, size))
	return int64(len(whole(text))), err
}

// whole is the text up to its last line break: an enqueue that did not get that
// far has not told its user that the jobs are kept.
func whole(text []byte) []byte { return text[:bytes.LastIndexByte(text, '\n')+1] }

// Spooled gives the lines that were spooled before the server started, in their
// order. The caller enqueues them and then calls done, which deletes them.
// Without done, say after a crash, the next server gets them again: each should
// carry its task's id, so that it is not enqueued twice.
func (s *Server) Spooled() (lines [][]byte, done func() error) {
	return s.spool, func() error {
		var errs []error
		for _, name := range s.taken {
			errs = append(errs, os.Remove(name))
		}
		return errors.Join(errs...)
	}
}

// take renames the spool, so that what is spooled from now on is not deleted
// with it, and reads it after whatever an earlier server took and left. The
// caller holds the lock.
func (f Folder) take() (lines [][]byte, taken []string, err error) {
	name := f.path(fmt.Sprintf("spool.%020d.taken", time.Now().UnixNano()))
	if err := os.Rename(f.spoolFile(), name); err != nil && !os.IsNotExist(err) {
		return nil, nil, err
	}
	if taken, err = f.taken(); err != nil {
		return nil, nil, err
	}
	lines, err = readLines(taken)
	return lines, taken, err
}

// taken lists the files that were taken and not done with, oldest first.
func (f Folder) taken() ([]string, error) {
	entries, err := os.ReadDir(string(f))
	if err != nil {
		return nil, err
	}
	var names []string
	for _, entry := range entries {
		name := entry.Name()
		if strings.HasPrefix(name, "spool.") && strings.HasSuffix(name, ".taken") {
			names = append(names, f.path(name))
		}
	}
	return names, nil
}

// A Rest is a copy of what the next server will find, to look at while none runs.
type Rest struct {
	redis   *miniredis.Miniredis
	Saved   time.Time // when the last server saved its keys; zero if there are none
	Spooled int       // how many lines wait in the spool
}

// Look gives what the next embedded server will find in the folder, which stays as it is.
// The caller must close it.
func (f Folder) Look() (*Rest, error) {
	unlock, err := f.lock()
	if err != nil {
		return nil, fmt.Errorf("read what is kept: %w", err)
	}
	defer unlock()
	r := &Rest{redis: miniredis.NewMiniRedis()}
	lines, err := f.spooled()
	r.Spooled = len(lines)
	found := false
	if err == nil {
		found, err = restore(r.redis, f.keptFile())
	}
	if stat, missing := os.Stat(f.keptFile()); found && missing == nil {
		r.Saved = stat.ModTime()
	}
	if err != nil {
		return nil, fmt.Errorf("read what is kept: %w", err)
	}
	return r, nil
}

// Dial connects to the copy; its form is that of a Redis client's dialer.
func (r *Rest) Dial(context.Context, string, string) (net.Conn, error) { return r.redis.Dial() }

// Close forgets the copy.
func (r *Rest) Close() { r.redis.Close() }
