//go:build unix

package embedded

import (
	"os"
	"syscall"
)

const errLocked = syscall.EWOULDBLOCK // error of lockFile if another process has the lock

func lockFile(file *os.File) error {
	return syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}
