//go:build unix

package worker

import (
	"math"
	"syscall"
)

// descriptors is how many file descriptors this process may have open.
func descriptors() uint64 {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return math.MaxUint64
	}
	return uint64(limit.Cur)
}
