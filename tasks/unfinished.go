package tasks

import (
	"errors"
	"io/fs"
	"os"
	"regexp"
	"time"

	"github.com/google/uuid"
)

// UnfinishedLifetime is how long the file of an interrupted save stays: see RemoveUnfinished.
const UnfinishedLifetime = 12 * time.Hour

// unfinishedForm matches the names of unfinishedName.
var unfinishedForm = regexp.MustCompile(`^\.headgate-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\.part$`)

// unfinishedName returns the name of a new file for a body that is not complete.
func unfinishedName() string { return ".headgate-" + uuid.NewString() + ".part" }

// RemoveUnfinished deletes the files of interrupted saves from a SaveDir, and returns their number. A
// save leaves such a file only if its process was killed. RemoveUnfinished deletes no file of another
// name, and none that was written in the last UnfinishedLifetime, because another process may save to
// the same folder.
func RemoveUnfinished(dir string) (removed int, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return 0, err
	}
	defer root.Close()
	entries, err := fs.ReadDir(root.FS(), ".")
	errs := []error{err}
	for _, e := range entries {
		if !unfinishedForm.MatchString(e.Name()) || !e.Type().IsRegular() {
			continue
		}
		info, err := e.Info()
		if err == nil && time.Since(info.ModTime()) < UnfinishedLifetime {
			continue
		}
		if err == nil {
			err = root.Remove(e.Name())
		}
		switch {
		case err == nil:
			removed++
		case !errors.Is(err, fs.ErrNotExist): // another process was faster
			errs = append(errs, err)
		}
	}
	return removed, errors.Join(errs...)
}
