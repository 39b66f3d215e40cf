//go:build unix

package embedded

import (
	"io/fs"
	"os"
	"syscall"
)

func own(file fs.FileInfo) bool {
	stat, ok := file.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Getuid()
}
