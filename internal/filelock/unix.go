//go:build unix

// Package filelock tells whether a process that writes to a file is still there.
package filelock

import (
	"os"
	"syscall"
)

// Lock takes a file for this process until it is closed, however it ends. The error
// says that another has it.
func Lock(file *os.File) error {
	return syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}
