//go:build !unix

package scheduler

import "os"

// stopSignals are the signals after which Run takes no more jobs, but does not return.
var stopSignals []os.Signal
