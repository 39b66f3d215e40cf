package warc

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/google/uuid"

	"github.com/headgate/headgate/internal/filelock"
)

// unfinished ends the name of a file that is still written to. Who collects files
// takes those that end in .warc.gz: they do not change any more.
const unfinished = ".open"

// idle is for how long nothing may come to a file before it is finished, as when its crawl
// has ended.
const idle = time.Minute

// Folder keeps exchanges in files of a folder: one for each name and process,
// called NAME-TIME-ID.warc.gz. An exchange is in its file whole or not at all;
// what a process left behind that died in the middle of one is cut off by Recover,
// or as soon as another writes under that name. It is for several goroutines.
//
// A file that is still written to ends in .open and is locked, which is how others
// know that its process lives. Files have no greatest size: Close ends them, as does a
// minute in which nothing comes, and the next exchange begins another.
type Folder struct {
	// Dir must exist.
	Dir string
	// Info is said at the beginning of each file, in its warcinfo record, such as
	// the software that made it.
	Info []Field

	mu    sync.Mutex
	files map[string]*file
	open  func(name string) (appender, error) // nil means openFile
}

// appender is what of an *os.File is used, so that tests can fill the disk.
type appender interface {
	io.WriteCloser
	Sync() error
	Truncate(size int64) error
	Name() string
}

// file is one that is written to. Up to size it is whole records.
type file struct {
	to   appender
	size int64
	torn bool // whether it could not be cut back to size
	end  *time.Timer
}

// Add writes an exchange, and returns once it is on disk: in which file, without
// the folder, and where in it. The file's name is the one that it will have once it
// is finished. The name is part of that, so it must be fit for one.
//
// Exchanges are written one after the other, with an fsync each: some milliseconds
// on a disk. After an error nothing of the exchange stays in the file, and the next
// may well be written.
func (f *Folder) Add(name string, e Exchange) (filename string, at Position, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	to, err := f.file(name)
	if err != nil {
		return "", at, fmt.Errorf("archive: %w", err)
	}
	records, err := e.records()
	if err == nil {
		at, err = to.append(records)
	}
	if to.end == nil {
		to.end = time.AfterFunc(idle, func() { f.end(name, to) })
	}
	to.end.Reset(idle)
	if to.torn { // and whoever writes next under that name repairs it
		delete(f.files, name)
		_ = to.to.Close()
	}
	return strings.TrimSuffix(filepath.Base(to.to.Name()), unfinished), at, err
}

// file is the process's own of that name, made at the first exchange, after what dead
// processes have left under the name was finished.
func (f *Folder) file(name string) (*file, error) {
	if to := f.files[name]; to != nil {
		return to, nil
	}
	if err := f.recover(literal.Replace(name)); err != nil {
		return nil, err
	}
	// The time sorts a name's files, and the ID keeps those of several processes apart
	// that begin in one second.
	now := time.Now().UTC()
	base := fmt.Sprintf("%s-%s-%s.warc.gz", name, now.Format("20060102150405"), uuid.NewString()[:8])
	open := f.open
	if open == nil {
		open = openFile
	}
	opened, err := open(filepath.Join(f.Dir, base+unfinished))
	if errors.Is(err, errTaken) { // which is rare, and under another ID next time
		return f.file(name)
	}
	if err != nil {
		return nil, err
	}
	to := &file{to: opened}
	records, err := info(base, now, f.Info)
	if err == nil {
		_, err = to.append(records)
	}
	if err != nil {
		return nil, errors.Join(err, opened.Close(), os.Remove(opened.Name()))
	}
	if f.files == nil {
		f.files = map[string]*file{}
	}
	f.files[name] = to
	return to, nil
}

// openFile makes a file that did not exist, and locks it. What is written goes to its
// end, wherever a cut has put that. Between the two another process may take the file
// for one that a dead process left, which is errTaken.
func openFile(name string) (appender, error) {
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, err
	}
	if err := own(file); errors.Is(err, errTaken) {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil // where nothing can be locked it is never taken over either
}

// errTaken is about a file that is another process's: it is locked, or not there any
// more under the name that it was opened by.
var errTaken = errors.New("another process has taken the file")

func own(file *os.File) error {
	if err := filelock.Lock(file); errors.Is(err, syscall.EWOULDBLOCK) {
		return errTaken
	} else if err != nil {
		return err
	}
	opened, err := file.Stat()
	if err != nil {
		return err
	}
	if there, err := os.Stat(file.Name()); err != nil || !os.SameFile(opened, there) {
		return errTaken
	}
	return nil
}

// append writes records all or none: in one piece, and where that fails, the
// file is cut back to what it was. Also where only the fsync failed: nobody knows
// what of it is on disk then. The file is open for appending, so after a cut the
// next record follows where that is.
func (f *file) append(records []record) (Position, error) {
	packed, at, err := pack(records, f.size)
	if err != nil {
		return at, err
	}
	_, err = f.to.Write(packed)
	if err == nil {
		err = f.to.Sync()
	}
	if err != nil {
		cut := f.to.Truncate(f.size)
		f.torn = cut != nil
		return Position{}, errors.Join(fmt.Errorf("archive: %w", err), cut)
	}
	f.size += int64(len(packed))
	return at, nil
}

// end finishes a file to which nothing has come for a while.
func (f *Folder) end(name string, to *file) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.files[name] == to {
		_ = f.finish(name) // else Recover does
	}
}

// Close finishes the files, which takes .open from their names. The folder can be used
// again. Its error joins those of single files; one that could not be finished
// keeps its name, and the next process that writes under it does that.
func (f *Folder) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var failed error
	for name := range f.files {
		failed = errors.Join(failed, f.finish(name))
	}
	return failed
}

func (f *Folder) finish(name string) error {
	to := f.files[name].to
	delete(f.files, name)
	return errors.Join(to.Close(), finish(to.Name()))
}

// finish gives a file its final name, which says that it is whole.
func finish(name string) error { return os.Rename(name, strings.TrimSuffix(name, unfinished)) }

var literal = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`)

// Recover finishes the files in the folder whose processes have died.
func (f *Folder) Recover() error { return f.recover("*") }

// recover finishes those whose name a pattern of path.Match fits.
func (f *Folder) recover(pattern string) error {
	left, err := fs.Glob(os.DirFS(f.Dir), pattern+"-??????????????-????????.warc.gz"+unfinished)
	if err != nil {
		return err
	}
	for _, base := range left {
		if err := repair(filepath.Join(f.Dir, base)); err != nil {
			return fmt.Errorf("%s, which a process left: %w", base, err)
		}
	}
	return nil
}

// repair cuts a file that nobody writes to any more back to its whole records,
// and finishes it. One without any goes. It holds the lock meanwhile, so that of
// several processes only one repairs.
func repair(path string) error {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil // somebody else was faster
	}
	if err != nil {
		return err
	}
	defer file.Close()
	if own(file) != nil {
		return nil // it is written to, or somebody else was faster
	}
	size, err := whole(file)
	if err != nil {
		return err
	}
	// On disk before the name says so: a power cut after the rename must not bring back
	// what was cut off.
	if err := errors.Join(file.Truncate(size), file.Sync()); err != nil {
		return err
	}
	if size == 0 {
		return os.Remove(path)
	}
	return finish(path)
}

// whole is how many bytes of a file are records that are complete: it unpacks each, so
// that gzip's own checksum says it. What follows the first that is not is no record
// that anybody could find. A file that cannot be read is an error, and nothing is cut
// off it then.
func whole(file io.ReadSeeker) (size int64, err error) {
	in := bufio.NewReader(file) // of which gzip takes no byte of the record after
	for {
		// One record is one gzip member, as WARC 1.1 has it (annex D).
		z, err := gzip.NewReader(in)
		if err == nil {
			z.Multistream(false)
			_, err = io.Copy(io.Discard, z)
		}
		if broken, ok := errors.AsType[*fs.PathError](err); ok {
			return 0, broken
		}
		if err != nil { // the end, or what is no whole record
			return size, nil
		}
		read, err := file.Seek(0, io.SeekCurrent)
		if err != nil {
			return 0, err
		}
		size = read - int64(in.Buffered())
	}
}
