//go:build unix

package proctest

import (
	"os"
	"sync"
	"syscall"
	"testing"
)

// FreezeLock is the environment variable by which internal/testutil/stall names its file for
// [LockFreezes].
const FreezeLock = "HEADGATE_FREEZE_LOCK"

// Freeze stops processes until thaw is called or the test ends. The command internal/testutil/stall
// stops processes, too, and would continue these. So it stops none until thaw.
func Freeze(t *testing.T, pids ...int) (thaw func()) {
	t.Helper()
	unlock := func() {}
	if file := os.Getenv(FreezeLock); file != "" {
		var err error
		if unlock, err = LockFreezes(file); err != nil {
			t.Fatal(err)
		}
	}
	thaw = sync.OnceFunc(func() {
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGCONT)
		}
		unlock()
	})
	t.Cleanup(thaw)
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
	}
	return thaw
}

// LockFreezes waits until no other process holds the lock of a file. The holder may freeze processes
// and continue them.
func LockFreezes(file string) (unlock func(), err error) {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != syscall.EINTR {
			return func() { _ = f.Close() }, err
		}
	}
}
