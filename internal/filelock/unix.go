//go:build unix

// Package filelock tells whether a process that writes to a file is still there.
package filelock

import (
	"os"
	"syscall"
)

// Lock locks a file until this process closes it or ends. The error is syscall.EWOULDBLOCK if
// another process has locked it.
func Lock(file *os.File) error {
	return syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}
