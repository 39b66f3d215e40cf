package filelock

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/windows"
)

// Lock takes a file for this process until it is closed, however it ends. The error
// is syscall.EWOULDBLOCK if another process has it.
func Lock(file *os.File) error {
	// Windows lets no other process read locked bytes, so the locked one is behind all data.
	err := windows.LockFileEx(windows.Handle(file.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY,
		0, 1, 0, &windows.Overlapped{OffsetHigh: 1 << 30})
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return syscall.EWOULDBLOCK
	}
	return err
}
