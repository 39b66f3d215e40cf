//go:build !unix

package worker

import "math"

// descriptors is how many file descriptors this process may have open: the system sets no limit.
func descriptors() uint64 { return math.MaxUint64 }
