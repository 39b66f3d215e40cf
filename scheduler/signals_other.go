//go:build !unix

package scheduler

import "os"

// stopSignals are those at which Run takes no more jobs and goes on.
var stopSignals []os.Signal
