package embedded

import "syscall"

// A Ctrl-C does not end redis-server, because a stopping worker still puts jobs back. The worker's death does.
func init() { childAttributes = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM} }
