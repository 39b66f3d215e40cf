//go:build unix

package worker

import (
	"syscall"
	"testing"
)

// TestMaxConnsFollowsTheLimit: a server's bound follows the limit of the process.
func TestMaxConnsFollowsTheLimit(t *testing.T) {
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	few := before
	few.Cur = 500
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
			t.Error(err)
		}
	}()
	if got := maxConns(); got != 250 {
		t.Errorf("with 500 descriptors %d connections, want 250", got)
	}
}
