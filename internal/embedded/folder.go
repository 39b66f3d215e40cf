package embedded

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/rogpeppe/go-internal/lockedfile"
)

// A Folder is where the address file and the spool are. Commands use [Default];
// tests use one of their own.
type Folder string

// Default is the folder "headgate" among the user's caches or, for a user
// without a home, among the temporary files. One that is there is refused unless it is
// the user's own.
func Default() (Folder, error) {
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("headgate-%d", os.Getuid()))
	if caches, err := os.UserCacheDir(); err == nil {
		dir = filepath.Join(caches, "headgate")
	}
	if err := private(dir); err != nil && !os.IsNotExist(err) {
		return "", err
	}
	return Folder(dir), nil
}

// private refuses a folder that is another user's or that others can write to, who could say
// there which Redis jobs go to: anybody can create one among the temporary files first, and
// root can have the home of somebody else.
func private(dir string) error {
	stat, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if !stat.IsDir() || stat.Mode().Perm()&0o022 != 0 || !own(stat) {
		return fmt.Errorf("%s is %v: it must be a folder of your own that nobody else writes to;"+
			" remove it or set HOME", dir, fs.FormatFileInfo(stat))
	}
	return nil
}

func (f Folder) path(name string) string { return filepath.Join(string(f), name) }

func (f Folder) addrFile() string { return f.path("embedded.addr") }

func (f Folder) spoolFile() string { return f.path("spool.jsonl") }

func (f Folder) keptFile() string { return f.path("embedded.keys") }

// lock keeps all other users of the folder out until unlock is called or the
// process ends. It creates the folder if it is missing.
func (f Folder) lock() (unlock func(), err error) {
	if err := os.MkdirAll(string(f), 0o700); err != nil {
		return nil, err
	}
	if err := private(string(f)); err != nil {
		return nil, err
	}
	return lockedfile.MutexAt(f.path("lock")).Lock()
}
