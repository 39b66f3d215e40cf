//go:build unix

package embedded

import (
	"io/fs"
	"os"
	"syscall"
)

// own reports whether a file is of the user who runs this process.
func own(file fs.FileInfo) bool {
	stat, ok := file.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Getuid()
}
