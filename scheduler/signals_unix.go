//go:build unix

package scheduler

import (
	"os"
	"syscall"
)

// stopSignals are the signals after which Run takes no more jobs, but does not return.
var stopSignals = []os.Signal{syscall.SIGTSTP}
