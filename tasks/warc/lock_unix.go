//go:build unix

package warc

import (
	"os"
	"syscall"
)

// lock takes a file for this process until it is closed, however it ends.
func lock(file *os.File) error {
	return syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}
