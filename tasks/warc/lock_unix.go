//go:build unix

package warc

import (
	"os"
	"syscall"
)

// lock takes a file for this process until it is closed, however it ends: the system
// lets go of it. It does not wait, and fails where somebody has the file, be it this
// process through another opening of it.
func lock(file *os.File) error {
	return syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}
